"use strict";
// The theme: what the system prefers, until somebody chooses. A page in a sandbox has no storage.
{
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => { button.textContent = isDark() ? "Light theme" : "Dark theme"; };
  try {
    const chosen = localStorage.getItem("buildmatrix-theme");
    if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  } catch { /* No storage. */ }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("buildmatrix-theme", root.dataset.theme); } catch { /* No storage. */ }
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
  button.hidden = false;
}
