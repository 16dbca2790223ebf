// SPDX-License-Identifier: Apache-2.0
// Looks at the page of `uma report` as a browser draws it, uses its controls, and writes what it
// found behind the page.
"use strict";
(() => {
  const box = (element) => element.getBoundingClientRect();
  const clock = document.querySelector(".clock");
  const view = () => {
    const [start, , width] = clock.getAttribute("viewBox").split(" ").map(Number);
    return [start, width];
  };

  // Pairs of texts of a drawing that share pixels; a pixel at the edge is none.
  function overlaps(drawing) {
    const texts = [...drawing.querySelectorAll("text")]
      .filter((text) => text.firstChild && text.firstChild.nodeType === Node.TEXT_NODE)
      .filter((text) => text.firstChild.data.trim() && text.style.display !== "none");
    const found = [];
    texts.forEach((first, number) => {
      for (const second of texts.slice(number + 1)) {
        const [a, b] = [box(first), box(second)];
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        // Boxes of texts are as high as their lines, with room above and below the letters.
        const turned = first.hasAttribute("transform") || second.hasAttribute("transform");
        if (across > 1 && down > 5 && !turned) found.push([first.textContent, second.textContent]);
      }
    });
    return found;
  }

  function pointer(kind, x) {
    const y = box(clock).top + 30;
    clock.dispatchEvent(new PointerEvent(kind, { clientX: x, clientY: y, pointerId: 1, bubbles: true }));
  }

  const drawings = [...document.querySelectorAll("svg.drawing")];
  const result = {
    drawings: drawings.map((each) => ({ width: box(each).width, height: box(each).height })),
    pageWidth: document.documentElement.scrollWidth,
    labels: document.querySelectorAll("svg.drawing text").length,
    overlaps: drawings.flatMap(overlaps),
    zoom: {},
  };
  const zoom = result.zoom;
  const button = (name) => document.querySelector(`[data-zoom="${name}"]`);
  const select = button("layer");
  clock.setPointerCapture = () => {}; // there is no pointer that could be captured
  zoom.all = view();
  button("in").click();
  zoom.in = view();
  select.value = select.options[2].value;
  zoom.second = select.value.split(" ").map(Number);
  select.dispatchEvent(new Event("change"));
  zoom.layer = view();
  zoom.overlaps = overlaps(drawings[0]);
  zoom.ticks = [...drawings[0].querySelectorAll("[data-tick] text")]
    .map((text) => Number(text.textContent.replaceAll(",", "")));
  pointer("pointerdown", 640);
  pointer("pointermove", 540);
  pointer("pointerup", 540);
  zoom.dragged = view();
  clock.dispatchEvent(new WheelEvent("wheel",
    { ctrlKey: true, deltaY: -1, clientX: 640, bubbles: true, cancelable: true }));
  zoom.wheel = view();
  for (let time = 0; time < 20; time++) button("out").click();
  zoom.out = view();
  const place = document.createElement("pre");
  place.id = "probe";
  place.textContent = JSON.stringify(result);
  document.body.append(place);
})();
