// Explores predictions: the JSON beside this script in, a table to sort and filter out, and a dialog for one sample.
const root = document.currentScript.closest(".explorer");
const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
const part = (name) => root.querySelector(`[data-part="${name}"]`);
const three = (number) => number.toFixed(3);
const named = (k) => data.classes[k];
const many = (count) => `${count} sample${count === 1 ? "" : "s"}`;

const make = (tag, options = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), options);
  node.append(...children);
  return node;
};

// What the model says of a sample: bounds, the distribution that stands for them, and what follows.
const said = (group, step, at) => {
  const { label, kept, lower, upper, middle, AU, EU, TU } = group.steps[step];
  const [low, high, mid] = [lower, upper, middle].map((of) => of[at].map((number) => number / data.scale));
  return { label: label[at], kept: kept[at], lower: low, upper: high, middle: mid, AU: AU[at], EU: EU[at], TU: TU[at] };
};

const samples = data.groups.flatMap((group) => group.names.map((name, at) => {
  const { label, kept, AU, EU, TU } = said(group, group.own, at);
  const truth = group.truth ? group.truth[at] : null;
  return { group, at, name, truth, label, size: kept.length, AU, EU, TU, right: truth === null ? null : truth === label };
}));
samples.forEach((sample, number) => { sample.number = number; });

// Filters: what is compared, and how a value is called. One with a single value is left out.
const place = ({ data: name, outside }) =>
  outside === null ? name : `${name} (${outside ? "out of" : "in"} distribution)`;
const answer = (right) => (right ? "right" : "wrong");
const FILTERS = {
  size: ["classes left", (sample) => sample.size, String],
  right: ["answer", (sample) => sample.right, answer],
  truth: ["true class", (sample) => sample.truth, named],
  label: ["predicted", (sample) => sample.label, named],
  data: ["data", (sample) => place(sample.group), String],
};
const filters = Object.entries(FILTERS).flatMap(([key, [title, of, call]]) => {
  const values = [...new Set(samples.map(of))].filter((value) => value !== null);
  if (values.length < 2) return [];
  if (key !== "data") values.sort((a, b) => a - b);
  const options = values.map((value, at) => make("option", { value: at }, call(value)));
  const select = make("select", { name: key }, make("option", { value: "" }, "all"), ...options);
  part("filters").append(make("label", {}, title, select));
  return [{ select, passes: (sample) => select.value === "" || of(sample) === values[select.value] }];
});

// Columns: the order they sort by, and what they show. Uncertainties start with the greatest.
const tick = (sample) => (sample.right === false ? [make("span", { className: "wrong", title: "wrong" }, " ✗")] : []);
const clipped = (text) => make("span", { className: "clip", title: text }, text);
const wordy = (by) => ({ by, first: 1 });
const COLUMNS = {
  name: { title: "sample", ...wordy((sample) => sample.number), cell: opener },
  data: { title: "data", ...wordy((sample) => data.groups.indexOf(sample.group)), cell: (s) => [clipped(s.group.data)] },
  truth: { title: "true", ...wordy((sample) => sample.truth ?? Infinity),
    cell: (s) => [s.truth === null ? "–" : clipped(named(s.truth))] },
  label: { title: "predicted", ...wordy((sample) => sample.label), cell: (s) => [clipped(named(s.label)), ...tick(s)] },
  size: { title: "left", hint: "classes not ruled out", by: (sample) => sample.size, first: -1, cell: (s) => [s.size] },
};
for (const [key, hint] of Object.entries({ AU: "aleatoric", EU: "epistemic", TU: "total" }))
  COLUMNS[key] = { title: key, hint: `${hint} uncertainty`, by: (sample) => sample[key], first: -1, cell: (s) => [three(s[key])] };
if (data.groups.every((group) => group.data === data.groups[0].data)) delete COLUMNS.data;
if (samples.every((sample) => sample.truth === null)) delete COLUMNS.truth;
if (!data.credal) delete COLUMNS.size;

function opener(sample) {
  const image = sample.group.images[sample.at];
  const picture = image ? [make("img", { src: image, alt: "", width: 32, loading: "lazy" })] : [];
  const about = `${sample.name}, predicted ${named(sample.label)}${sample.right === false ? ", wrong" : ""}`;
  sample.button = make("button", { type: "button", tabIndex: -1, ariaLabel: about }, ...picture, clipped(sample.name));
  return [sample.button];
}

function row(sample) {
  const cells = Object.entries(COLUMNS).map(([key, { cell }]) => make("td", { className: `column-${key}` }, ...cell(sample)));
  return make("tr", { onclick: () => show(sample) }, ...cells);
}

const sorted = { key: "TU", sign: -1 };
const BATCH = 100;  // rows that are made at once; more when one scrolls or goes there
let view = [], current = null;
for (const [key, { title, hint, first }] of Object.entries(COLUMNS)) {
  const button = make("button", { type: "button", title: `sort by ${hint || title}` }, title);
  button.onclick = () => {
    Object.assign(sorted, { key, sign: sorted.key === key ? -sorted.sign : first });
    list();
  };
  part("head").append(make("th", { scope: "col", className: `column-${key}` }, button));
}

function list() {
  const { by } = COLUMNS[sorted.key];
  const order = (a, b) => sorted.sign * (by(a) - by(b)) || a.number - b.number;
  view = samples.filter((sample) => filters.every(({ passes }) => passes(sample))).sort(order);
  part("rows").replaceChildren();
  fill(BATCH);
  Object.keys(COLUMNS).forEach((key, at) => {
    const direction = sorted.sign > 0 ? "ascending" : "descending";
    part("head").children[at].ariaSort = key === sorted.key ? direction : "none";
  });
  part("count").value = view.length === samples.length
    ? many(samples.length) : `${view.length} of ${many(samples.length)}`;
  part("reset").hidden = filters.every(({ select }) => select.value === "");
  part("scroll").scrollTop = 0;
  if (view.length) reachable(view[0]);
}

function fill(count) {
  const rows = part("rows");
  rows.append(...view.slice(rows.children.length, count).map((sample) => (sample.row ??= row(sample))));
}
part("scroll").onscroll = ({ target }) => {
  if (target.scrollTop + 2 * target.clientHeight > target.scrollHeight) fill(part("rows").children.length + BATCH);
};

// One row can be reached by tab, the others from it by the arrow keys.
function reachable(sample) {
  if (current) current.button.tabIndex = -1;
  current = sample;
  current.button.tabIndex = 0;
}
const focus = (sample) => {
  fill(view.indexOf(sample) + 1);
  reachable(sample);
  sample.button.focus();
};

part("filters").onchange = list;
part("reset").onclick = () => {
  for (const { select } of filters) select.value = "";
  list();
  filters[0].select.focus();
};
part("rows").onkeydown = (event) => {
  const at = view.findIndex(({ button }) => button === event.target);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 10, PageUp: at - 10, Home: 0, End: view.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  focus(view[Math.max(0, Math.min(to, view.length - 1))]);
};

// One sample in a dialog.
const dialog = part("dialog"), range = root.querySelector(".width input");
let shown = null, step = null;  // the width of the inputs that was asked for, as the number of a step; null is the data's own

function show(sample) {
  shown = sample;
  const { group, at } = sample, image = group.images[at], row = group.cells[at] ?? [];
  part("title").textContent = dialog.ariaLabel = sample.name;
  const truth = sample.truth === null ? "" : `; true class ${named(sample.truth)}`;
  part("facts").textContent = `${place(group)}${truth}; number ${view.indexOf(sample) + 1} of ${view.length}`;
  part("picture").replaceChildren(...(image ? [make("img", { src: image, alt: sample.name })] : []));
  const lines = row.map((text, k) => make("tr", {}, make("th", { scope: "row" }, group.columns[k]), make("td", {}, text)));
  part("cells").replaceChildren(make("table", {}, make("tbody", {}, ...lines)));
  part("cells").hidden = row.length === 0;
  if (range) {
    part("width").hidden = group.steps.length < 2;
    range.max = group.steps.length - 1;
    range.value = step ?? group.own;
  }
  tell();
  if (dialog.open) return;
  dialog.showModal();
  part("title").focus();
  dialog.scrollTop = 0;
}

// What the model says, at the width that is asked for.
function tell() {
  const { group, at } = shown;
  const now = group.steps.length > 1 ? Number(range.value) : group.own;
  const found = said(group, now, at);
  if (range) root.querySelector(".width output").value = range.ariaValueText = group.steps[now].said;
  part("decision").textContent = decision(found);
  const order = [...data.classes.keys()].sort((a, b) => found.upper[b] - found.upper[a]);
  const most = data.classes.length > 12 ? Math.max(12, found.kept.length) : 12;
  const rows = (data.classes.length > 12 ? order.slice(0, most) : [...data.classes.keys()]).map((k) => interval(found, k));
  if (order.length > most) {
    const others = `${order.length - most} others, each up to ${three(found.upper[order[most]])}, are ruled out`;
    rows.push(make("tr", {}, make("td", { colSpan: 4 }, others)));
  }
  part("intervals").replaceChildren(...rows);
  if (part("triangle")) part("drawn").textContent = drawn(found);
}

// The least lead of class i over class j among all members is lower[i] - upper[j]: bounds are reachable.
function decision({ label, kept, lower, upper, AU, EU, TU }) {
  const others = [...data.classes.keys()].filter((k) => k !== label);
  const nearest = others.reduce((a, b) => (upper[b] > upper[a] ? b : a));
  const quoted = (k) => `“${named(k)}”`, lack = upper[nearest] - lower[label], name = quoted(label);
  const numbers = `Predicted: ${name}. AU ${three(AU)}, EU ${three(EU)}, TU ${three(TU)}. `;
  if (!data.credal) return numbers;
  if (kept.length === 1 && lack < 0)
    return `${numbers}All classes except ${name} are ruled out, by a difference of at least ${three(-lack)}.`;
  if (kept.length === 1) return `${numbers}All classes except ${name} are ruled out.`;
  return `${numbers}${kept.length} classes are not ruled out: ${kept.map(quoted).join(", ")}. `
    + `The lower probability of ${name} is ${three(lower[label])}, and the upper probability of ${quoted(nearest)} `
    + `is ${three(upper[nearest])}, which is higher by ${three(Math.max(0, lack))}.`;
}

function interval({ label, kept, lower, upper, middle }, k) {
  const lead = upper[k] - lower[label], strongest = lower.indexOf(Math.max(...lower)), isKept = kept.includes(k);
  let verdict = `could lead by ${three(Math.max(0, lead))}`;
  if (k === label) verdict = "predicted";
  else if (!data.credal) verdict = `behind by ${three(-lead)}`;
  else if (!isKept && lead <= 0) verdict = `ruled out by ${three(-lead)}`;
  else if (!isKept && upper[k] < lower[strongest]) verdict = `ruled out by ${named(strongest)}`;
  else if (!isKept) verdict = "never the most probable";
  const bar = make("i", { className: "bar" }), mark = make("i", { className: "mark" });
  Object.assign(bar.style, { left: `${100 * lower[k]}%`, width: `${100 * (upper[k] - lower[k])}%` });
  mark.style.left = `${100 * middle[k]}%`;
  return make("tr", { className: isKept ? "kept" : "" },
    make("th", { scope: "row" }, clipped(named(k))),
    make("td", { ariaHidden: "true" }, make("div", { className: "track" }, bar, mark)),
    make("td", { className: "number" }, data.credal ? `${three(lower[k])} – ${three(upper[k])}` : three(middle[k])),
    make("td", {}, verdict));
}

// Corners: a class, the r-th most probable one (#r), or the rest, all other classes together.
const corners = part("corners") ? [0, 1, 2].map((rank) => {
  const ordinal = ["most probable", "2nd most probable", "3rd most probable"][rank];
  const others = rank === 2 && data.classes.length > 3 ? [make("option", { value: "rest" }, "any other class")] : [];
  const classes = data.classes.map((name, k) => make("option", { value: k }, name));
  const options = [...others, make("option", { value: "#" }, ordinal), ...classes];
  const select = make("select", { ariaLabel: `corner ${rank + 1}` }, ...options);
  part("corners").append(make("label", {}, ["top", "left", "right"][rank], select));
  return select;
}) : [];

// Draws the set in the triangle of the three corners, and says what is drawn.
function drawn({ lower, upper, middle }) {
  const picked = corners.map(({ value }) => value), every = [...data.classes.keys()];
  const free = every.filter((k) => !picked.includes(String(k))).sort((a, b) => middle[b] - middle[a]);
  const chosen = picked.map((value) => (value === "#" ? free.shift() : value === "rest" ? value : Number(value)));
  if (new Set(chosen).size < 3) {
    part("triangle").replaceChildren();
    return "Choose three different corners.";
  }
  const others = every.filter((k) => !chosen.includes(k)), rest = chosen.includes("rest");
  const together = (bound) => Math.min(1, sum(others.map((k) => bound[k])));
  const [low, high, mid] = [lower, upper, middle].map((bound) => chosen.map((k) => (k === "rest" ? together(bound) : bound[k])));
  const [least, most] = rest ? [1, 1] : [Math.max(sum(low), 1 - together(upper)), Math.min(sum(high), 1 - together(lower))];
  const names = chosen.map((k) => (k === "rest" ? "any other" : named(k)));
  drawTriangle(part("triangle"), names, conditional(low, high, least, most), mid);
  const all = `the credal set over all ${data.classes.length} classes`, diamond = "the diamond is the intersection probability";
  if (data.classes.length === 3) return `The shaded polygon is the credal set, and ${diamond}.`;
  if (rest)
    return `The third corner is the sum of all classes except ${names[0]} and ${names[1]}. The shaded polygon is the exact `
      + `projection of ${all}, and ${diamond}.`;
  if (most < 1e-9) return "The probability of these three classes is 0, so nothing can be drawn.";
  return `The probabilities are conditional on these three classes. The shaded polygon is the set of all conditional `
    + `distributions of ${all}, and ${diamond}, also conditional. The probability of the three classes is between `
    + `${three(least)} and ${three(most)}.`;
}

const move = (by) => {
  const to = view[view.indexOf(shown) + by];
  if (to) show(to);
};
part("previous").onclick = () => move(-1);
part("next").onclick = () => move(1);
part("close").onclick = () => dialog.close();
dialog.onclick = (event) => { if (event.target === dialog) dialog.close(); };  // beside it
dialog.onclose = () => { step = null; focus(shown); };
dialog.onkeydown = (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by && !event.target.matches("input, select")) move(by);
};
if (range) range.oninput = () => { step = Number(range.value); tell(); };
if (part("corners")) part("corners").onchange = tell;
list();
