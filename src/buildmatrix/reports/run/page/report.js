const boxes = document.querySelectorAll(".filter input");
function show() {
  const wanted = new Set([...boxes].filter((box) => box.checked).map((box) => box.value));
  for (const one of document.querySelectorAll("article")) one.hidden = !wanted.has(one.className);
  for (const group of document.querySelectorAll("section.target")) {
    group.querySelector(".none").hidden = group.querySelector("article:not([hidden])") !== null;
  }
}
for (const box of boxes) box.addEventListener("change", show);
document.querySelector(".filter").hidden = false;
show();
