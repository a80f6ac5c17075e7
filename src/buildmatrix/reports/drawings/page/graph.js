// The picture: zoomed by buttons and keys, and the arrows of one box shown in the crowd.
{
  const graph = document.querySelector(".graph");
  const svg = graph.querySelector("svg");
  const bar = document.querySelector(".zoom");
  const status = bar.querySelector("[role=status]");
  const full = svg.viewBox.baseVal.width;
  let scale = 1;
  const fit = () => Math.min(1, Math.max(0.05, graph.clientWidth / full));
  const zoom = (wanted) => {
    const next = Math.min(4, Math.max(0.05, wanted));
    // What is in the middle stays there.
    const [x, y] = [graph.scrollLeft + graph.clientWidth / 2, graph.scrollTop + graph.clientHeight / 2];
    svg.style.width = `${full * next}px`;
    graph.scrollTo({
      left: x * next / scale - graph.clientWidth / 2,
      top: y * next / scale - graph.clientHeight / 2,
      behavior: "instant",
    });
    scale = next;
    status.textContent = `${Math.round(100 * scale)} %`;
  };
  for (const button of bar.querySelectorAll("button")) {
    const way = button.dataset.zoom;
    button.addEventListener("click", () => {
      zoom(way === "fit" ? fit() : way === "full" ? 1 : scale * Number(way));
    });
  }
  graph.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") zoom(scale * 1.25);
    else if (event.key === "-") zoom(scale * 0.8);
    else if (event.key === "0") zoom(fit());
    else return;
    event.preventDefault();
  });
  const point = (box) => {
    for (const near of graph.querySelectorAll(".near")) near.classList.remove("near");
    const number = box ? box.id.slice(1) : "";
    const near = box ? graph.querySelectorAll(`.f${number}, .t${number}`) : [];
    for (const part of near) part.classList.add("near");
    graph.classList.toggle("pointed", near.length > 0);
  };
  const target = () =>
    /^#b\d+$/.test(location.hash) ? document.getElementById(location.hash.slice(1)) : null;
  const follow = () => {
    target()?.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    point(target());
  };
  for (const box of graph.querySelectorAll(".box")) {
    box.addEventListener("pointerenter", () => point(box));
    box.addEventListener("pointerleave", () => point(target()));
  }
  addEventListener("hashchange", follow);
  bar.hidden = false;
  zoom(fit());
  follow();
}
