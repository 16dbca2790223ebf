# SPDX-License-Identifier: Apache-2.0
"""The kind `layer`: driver, header and simulator that are made of a register map.

::

    functions.py   DriverFunction   the C functions of a driver, their arguments and tensors
    settings.py    settings_of      what each writes into which register, and pattern constraints
    mock.py        mock_of          how the simulator gets a layer's sizes back from registers
    values.py      layer_values     values of the templates
"""
