// SPDX-License-Identifier: Apache-2.0
// Looks at pages of `uma report` in frames of several widths, and writes what it found.
"use strict";
addEventListener("load", () => {
  const box = (element) => element.getBoundingClientRect();

  function look(frame) {
    const page = frame.contentDocument, width = frame.clientWidth;
    const boxes = [...page.querySelectorAll(".scroll")];
    const outside = [...page.querySelectorAll("body *")]
      .filter((each) => !each.closest(".scroll *, nav *, select, svg *"))
      .filter((each) => box(each).right > width + 1 || box(each).left < -1);
    const drawings = [...page.querySelectorAll("svg.drawing")];
    const letters = drawings.flatMap((drawing) => [...drawing.querySelectorAll("text")].map((text) =>
      parseFloat(getComputedStyle(text).fontSize) * box(drawing).width / drawing.viewBox.baseVal.width));
    const tallest = Math.max(...boxes.map((each) => box(each).height));
    const long = boxes.filter((each) => each.scrollHeight > each.clientHeight + 200)[0];
    let stays = null;
    if (long) {
      long.scrollTo({ left: 90, top: 150, behavior: "instant" });
      const [head, foot, name] =
        ["thead", "tfoot", "tbody .name"].map((each) => box(long.querySelector(each)));
      stays = {
        head: head.top - box(long).top,
        foot: box(long).top + long.clientHeight - foot.bottom,
        moved: long.scrollLeft,
        name: name.left - box(long).left,
      };
    }
    return {
      pageWidth: page.documentElement.scrollWidth,
      outside: outside.map((each) => `${each.tagName} ${each.className}`),
      wider: boxes.filter((each) => each.scrollWidth > each.clientWidth).length,
      letters: Math.min(...letters),
      tallest,
      stays,
      links: [...page.querySelectorAll("nav a")].map((each) => each.getAttribute("href").slice(1)),
      sections: [...page.querySelectorAll("section")]
        .map((each) => [each.id, box(each).height, box(each.querySelector("h2")).height]),
      loaded: frame.contentWindow.performance.getEntriesByType("resource").map((each) => each.name),
    };
  }

  const place = document.createElement("pre");
  place.id = "probe";
  place.textContent = JSON.stringify(
    Object.fromEntries([...document.querySelectorAll("iframe")].map((each) => [each.id, look(each)])));
  document.body.append(place);
});
