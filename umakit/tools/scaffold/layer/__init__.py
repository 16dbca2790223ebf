# SPDX-License-Identifier: Apache-2.0
"""The kind `layer`: driver, header and simulator made from a register map.

::

    functions.py   DriverFunction   the C functions of a driver, their arguments and tensors
    settings.py    settings_of      register writes of each function, and pattern constraints
    mock.py        mock_of          a layer's sizes from registers, for the simulator
    values.py      layer_values     values of the templates
"""
