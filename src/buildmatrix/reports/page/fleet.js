// All results: a page of them is drawn at a time. What is shown is in the address, to be sent on.
{
  const data = JSON.parse(document.getElementById("data").content.textContent);
  const list = (name) => data[name] ?? [];
  const [REPOSITORY, NAMES, DIGEST, BACKEND, OWNER, STATE, INSTALLED, UNUSABLE, PULL, UNUSABLE_PULL,
    CONTAINERS, CREATED, VENDORS, FINDINGS, FITS, LAYERS, ERROR, PLACES, NODES, KIND] = Array(20).keys();
  const PER_PAGE = 50;
  const section = document.getElementById("results");
  const form = section.querySelector("form");
  const body = section.querySelector("tbody");
  const [previous, next] = section.querySelectorAll(".pages button");
  const fields = [...form.querySelectorAll("select, input")];
  let fitting = [], page = 0;

  const size = (bytes) => {
    if (bytes < 1000) return `${bytes} B`;
    let value = bytes;
    for (const unit of ["kB", "MB", "GB", "TB"]) {
      value /= 1000;
      if (value < 999.95 || unit === "TB") return `${value.toFixed(1)} ${unit}`;
    }
  };
  const title = (row) => {
    const repository = list("repositories")[row[REPOSITORY]];
    if (row[KIND] === "lock") return [repository, ...row[NAMES].slice(0, 1)].join(" ");
    if (row[NAMES].length) return `${repository}:${row[NAMES][0]}`;
    return row[DIGEST] ? `${repository}@${row[DIGEST].slice(0, 19)}` : repository;
  };
  const part = (name, text = "", style = "") => {
    const element = document.createElement(name);
    element.textContent = text;
    if (style) element.className = style;
    return element;
  };

  // Search: the text of a row is put together when it is first looked at.
  const texts = new Map();
  const textOf = (row) => {
    let text = texts.get(row);
    if (text === undefined) {
      text = [
        list("repositories")[row[REPOSITORY]], title(row), ...row[NAMES], row[DIGEST], list("backends")[row[BACKEND]],
        list("owners")[row[OWNER]], row[STATE], list("errors")[row[ERROR]] ?? "",
        ...row[PLACES].map((number) => list("places")[number]),
        ...row[NODES].map((number) => list("nodes")[number]),
        ...row[FINDINGS].map((number) => data.findings[number].slice(0, 4).join(" ")),
      ].join(" ").toLowerCase();
      texts.set(row, text);
    }
    return text;
  };
  const fitsNode = (row, node, state) => {
    const fits = row[FITS].map((number) => data.fits[number]);
    if (!node) return !state || (state !== "unknown" && fits.some((fit) => fit[1] === state));
    const name = list("nodes").indexOf(node);
    const fit = fits.find((fit) => fit[0] === name);
    if (state === "unknown") return fit === undefined;
    return state ? fit?.[1] === state : fit !== undefined || row[NODES].includes(name);
  };
  const hasVendor = (row, vendor) => row[VENDORS].some((number, place) => place % 3 === 0 && number === vendor);
  const ORDERS = {
    "": (row) => row[UNUSABLE_PULL],
    running: (row) => row[UNUSABLE_PULL] * row[CONTAINERS],
    pull: (row) => row[PULL],
    containers: (row) => row[CONTAINERS],
  };
  const select = () => {
    const value = Object.fromEntries(fields.map((field) => [field.name, field.value]));
    const words = value.q.toLowerCase().split(/\s+/).filter(Boolean);
    const backend = list("backends").indexOf(value.backend);
    const owner = list("owners").indexOf(value.owner);
    const vendor = list("vendors").indexOf(value.vendor);
    const cause = Number(value.cause);
    fitting = data.rows.filter((row) =>
      (!value.state || row[STATE] === value.state)
      && (!value.backend || row[BACKEND] === backend)
      && (!value.owner || row[OWNER] === owner)
      && (!value.vendor || hasVendor(row, vendor))
      && (!value.cause || row[FINDINGS].some((number) => data.findings[number][4] === cause))
      && (!(value.node || value.fit) || fitsNode(row, value.node, value.fit))
      && words.every((word) => textOf(row).includes(word)));
    // Rows come by name: sorting keeps the order of those that are alike.
    const weight = ORDERS[value.sort];
    if (weight) fitting.sort((one, other) => weight(other) - weight(one));
  };

  const details = (row) => {
    const cell = part("td");
    cell.colSpan = 7;
    const say = (text, style = "") => { if (text) cell.append(part("p", text, style)); };
    say(row[ERROR] < 0 ? "" : list("errors")[row[ERROR]]);
    say([row[DIGEST], row[NAMES].slice(1).join(", "), row[CREATED] && `made ${row[CREATED]}`].filter(Boolean).join("; "), "mono small");
    const installed = [`${size(row[INSTALLED])} installed, ${size(row[UNUSABLE])} unused`];
    for (let place = 0; place < row[VENDORS].length; place += 3) {
      const [vendor, held, unusable] = row[VENDORS].slice(place, place + 3);
      installed.push(`${list("vendors")[vendor]} ${size(held)}${unusable ? ` (${size(unusable)} unused)` : ""}`);
    }
    if (row[INSTALLED]) say(installed.join("; "));
    const layers = [];
    for (let place = 0; place < row[LAYERS].length; place += 2) {
      layers.push(`${list("layers")[row[LAYERS][place]]} ${size(row[LAYERS][place + 1])}`);
    }
    if (layers.length) say(`layers with unused bytes: ${layers.join(", ")}`, "small dim");
    if (row[FINDINGS].length) {
      const findings = part("ul");
      for (const number of row[FINDINGS]) {
        const [severity, rule, message, remark] = data.findings[number];
        const item = part("li");
        const known = ["error", "warning", "note", "accepted"].includes(severity) ? severity : "note";
        item.append(part("span", severity, `chip ${known}`), ` ${rule} ${message}`);
        if (remark) item.append(`; ${severity === "accepted" ? "accepted" : "fix"}: ${remark}`);
        findings.append(item);
      }
      cell.append(findings);
    }
    for (const number of row[FITS]) {
      const [node, state, reasons] = data.fits[number];
      say(`${list("nodes")[node]}: ${state}${reasons.length ? `: ${reasons.join("; ")}` : ""}`);
    }
    if (row[NODES].length) say(`runs on ${row[NODES].map((number) => list("nodes")[number]).join(", ")}`);
    if (row[PLACES].length) say(`named by ${row[PLACES].map((number) => list("places")[number]).join(", ")}`, "small dim");
    const line = part("tr", "", "more");
    line.append(cell);
    return line;
  };
  const drawn = (row) => {
    const line = part("tr");
    const head = part("th");
    head.scope = "row";
    const button = part("button", title(row));
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => {
      const isOpen = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!isOpen));
      if (isOpen) line.nextElementSibling.remove(); else line.after(details(row));
    });
    head.append(button);
    const state = part("td");
    state.append(part("span", row[STATE], `chip ${row[STATE]}`));
    line.append(
      head, state,
      part("td", row[UNUSABLE_PULL] ? size(row[UNUSABLE_PULL]) : "", "number"),
      part("td", row[PULL] ? size(row[PULL]) : "", "number"),
      part("td", row[CONTAINERS] || "", "number"),
      part("td", list("backends")[row[BACKEND]]),
      part("td", list("owners")[row[OWNER]]),
    );
    return line;
  };
  const show = () => {
    select();
    const pages = Math.max(1, Math.ceil(fitting.length / PER_PAGE));
    page = Math.min(Math.max(0, page), pages - 1);
    const first = page * PER_PAGE;
    const shown = fitting.slice(first, first + PER_PAGE);
    body.replaceChildren(...shown.map(drawn));
    const unusable = fitting.reduce((sum, row) => sum + row[UNUSABLE_PULL], 0);
    form.querySelector(".shown").textContent = fitting.length
      ? `${fitting.length} of ${data.rows.length} fit, with ${size(unusable)} unused in pulls; ${first + 1} to ${first + shown.length} are shown`
      : `none of ${data.rows.length} fits`;
    section.querySelector(".pages span").textContent = `page ${page + 1} of ${pages}`;
    previous.disabled = page === 0;
    next.disabled = page === pages - 1;
  };
  const write = () => {
    const state = new URLSearchParams();
    for (const field of fields) if (field.value) state.set(field.name, field.value);
    if (page) state.set("page", page + 1);
    try {
      history.replaceState(null, "", `#${state}`);
    } catch { /* A page in a sandbox has no address. */ }
  };
  const read = () => {
    const state = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    for (const field of fields) {
      field.value = state.get(field.name) ?? "";
      // What is not in the list selects nothing.
      if (field.selectedIndex === -1) field.value = "";
    }
    page = (Number.parseInt(state.get("page"), 10) || 1) - 1;
  };
  form.addEventListener("input", () => { page = 0; show(); write(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { page = 0; show(); write(); }));
  section.querySelector(".pages").addEventListener("click", (event) => {
    const step = Number(event.target.dataset.step);
    if (!step) return;
    page += step;
    show();
    write();
    // A button that can do no more lets go of the focus.
    if (event.target.disabled) (step < 0 ? next : previous).focus();
    section.scrollIntoView();
  });
  addEventListener("hashchange", () => {
    if (!location.hash || location.hash.includes("=")) { read(); show(); }
  });
  // What is said of many leads to them.
  for (const words of document.querySelectorAll("[data-find]")) {
    const link = part("a");
    link.href = `#${words.dataset.find}`;
    link.append(...words.childNodes);
    link.addEventListener("click", () => { setTimeout(() => { section.scrollIntoView(); document.getElementById("results-title").focus({preventScroll: true}); }); });
    words.replaceChildren(link);
  }
  read();
  show();
  section.hidden = false;
  if (location.hash.includes("=")) section.scrollIntoView();
}
