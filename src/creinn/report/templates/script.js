document.addEventListener("click", ({ target }) => {
  const entry = target.closest(".legend button");
  if (!entry) return;
  const shown = entry.getAttribute("aria-pressed") === "false";
  entry.setAttribute("aria-pressed", shown);
  for (const plot of entry.closest(".drawn").querySelectorAll(".js-plotly-plot")) {
    const places = [...plot.data.keys()].filter((i) => plot.data[i].name === entry.textContent);
    if (places.length) Plotly.restyle(plot, { visible: shown }, places);
  }
});
const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => Plotly.Plots.resize(target)));
for (const plot of document.querySelectorAll(".js-plotly-plot")) {
  resized.observe(plot);  // a row of figures gets narrower with each that joins it
  if (matchMedia("(pointer: coarse)").matches) Plotly.relayout(plot, { dragmode: false });  // a finger scrolls
}
