// Findings: what is shown is in the address, so that it can be sent to somebody.
{
  const form = document.querySelector(".filter");
  const articles = [...document.querySelectorAll("article")];
  const boxes = [...form.querySelectorAll("input[type=checkbox]")];
  const fields = [...form.querySelectorAll("select, input[type=search]")];
  const texts = new Map();
  const textOf = (article) => {
    if (!texts.has(article)) texts.set(article, article.textContent.toLowerCase());
    return texts.get(article);
  };
  const show = () => {
    const kinds = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const value = Object.fromEntries(fields.map((field) => [field.name, field.value]));
    // Entries have the places of their targets in the list, which are shorter than names.
    const target = form.elements.target?.selectedIndex > 0 && String(form.elements.target.selectedIndex - 1);
    const words = value.q.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0, findings = 0, all = 0;
    for (const article of articles) {
      const data = article.dataset;
      const fits = kinds.has(article.className)
        && (!value.rule || data.rule === value.rule)
        && (!value.vendor || data.vendor === value.vendor)
        && (!target || data.targets.split(" ").includes(target))
        && words.every((word) => textOf(article).includes(word));
      article.hidden = !fits;
      all += Number(data.findings);
      if (fits) { shown += 1; findings += Number(data.findings); }
    }
    for (const section of document.querySelectorAll("section.target")) {
      section.querySelector(".none").hidden = section.querySelector("article:not([hidden])") !== null;
    }
    form.querySelector(".shown").textContent =
      `${findings} of ${all} findings shown, in ${shown} of ${articles.length} entries`;
  };
  const write = () => {
    const state = new URLSearchParams();
    for (const field of fields) if (field.value) state.set(field.name, field.value);
    const checked = boxes.filter((box) => box.checked).map((box) => box.value);
    if (checked.length < boxes.length) state.set("severity", checked.join(","));
    try {
      history.replaceState(null, "", `#${state}`);
    } catch { /* A page in a sandbox has no address. */ }
  };
  const read = () => {
    const state = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    for (const field of fields) {
      field.value = state.get(field.name) ?? "";
      // What a link names may be in this report no more.
      if (field.selectedIndex === -1) field.selectedIndex = 0;
    }
    const checked = state.has("severity") ? state.get("severity").split(",") : null;
    for (const box of boxes) box.checked = checked === null || checked.includes(box.value);
  };
  form.addEventListener("input", () => { show(); write(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { show(); write(); }));
  addEventListener("hashchange", () => { if (location.hash.includes("=")) { read(); show(); } });
  read();
  show();
  form.hidden = false;
}
// Graphs: a picture without the script is scrolled.
for (const bar of document.querySelectorAll(".zoom")) {
  const frame = bar.nextElementSibling;
  const picture = frame.querySelector("svg");
  const [, , width, height] = picture.getAttribute("viewBox").split(" ").map(Number);
  let scale = 1;
  bar.addEventListener("click", (event) => {
    const zoom = event.target.dataset.zoom;
    if (!zoom) return;
    scale = zoom === "fit" ? frame.clientWidth / width : scale * Number(zoom);
    scale = Math.min(4, Math.max(0.1, scale));
    picture.setAttribute("width", width * scale);
    picture.setAttribute("height", height * scale);
  });
  bar.hidden = false;
  frame.scrollTop = (frame.scrollHeight - frame.clientHeight) / 2;
}
