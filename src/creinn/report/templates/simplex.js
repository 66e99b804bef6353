// The triangle of three probabilities: a set of distributions in, its polygon out, exactly. Corners are top, left and right.
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const onPage = ([top, left, right]) => [150 + 120 * (right - left), 232 - 208 * top];

// The polygon of (q_a, q_b, q_c) / (q_a + q_b + q_c) over all members q. The vectors (q_a, q_b, q_c) are those of the box
// whose sum lies between least and most, a convex polytope; dividing by the sum keeps it convex, so that the hull of its
// vertices' images is the set. Vertices have two or three coordinates at a bound. (0, 0, 0), which has no image, is left out.
function conditional(low, high, least, most) {
  const points = [], near = 1e-9;
  for (const a of [0, 1, 2]) {
    const [b, c] = [0, 1, 2].filter((k) => k !== a);
    for (const qb of [low[b], high[b]]) for (const qc of [low[c], high[c]])
      for (const qa of [low[a], high[a], least - qb - qc, most - qb - qc]) {
        const total = qa + qb + qc, q = [];
        [q[a], q[b], q[c]] = [qa / total, qb / total, qc / total];
        const inside = qa > low[a] - near && qa < high[a] + near && total > least - near && total < most + near;
        if (inside && total > near) points.push(q);
      }
  }
  return hull(points.map(onPage));
}

// Convex hull of points in the plane, counter-clockwise: the monotone chain of Andrew (1979).
function hull(points) {
  const order = [...points].sort(([a, b], [c, d]) => a - c || b - d);
  const chain = (of) => of.reduce((found, [x, y]) => {
    const turns = ([[a, b], [c, d]]) => (c - a) * (y - b) - (d - b) * (x - a) > 1e-7;
    while (found.length > 1 && !turns(found.slice(-2))) found.pop();
    return [...found, [x, y]];
  }, []).slice(0, -1);
  return points.length < 2 ? points : [...chain(order), ...chain(order.reverse())];
}

function drawTriangle(svg, names, points, middle) {
  const draw = (tag, attributes, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const lines = [0.25, 0.5, 0.75].map((share) => {
    const x = 120 * share, y = 232 - 208 * share;
    return `M${30 + x} ${y}H${270 - x}M${30 + x} ${y}L${30 + 2 * x} 232M${270 - x} ${y}L${270 - 2 * x} 232`;
  });
  const total = sum(middle), [x, y] = onPage(middle.map((q) => q / total));
  const diamond = total > 0 ? [draw("path", { class: "middle", d: `M${x} ${y - 6}l6 6l-6 6l-6-6z` })] : [];
  const anchors = [[150, 16, "middle"], [2, 250, "start"], [298, 250, "end"]];
  const texts = names.map((name, corner) => {
    const [x, y, anchor] = anchors[corner];
    return draw("text", { x, y, "text-anchor": anchor }, name.length > 18 ? `${name.slice(0, 17)}…` : name);
  });
  svg.replaceChildren(
    draw("path", { class: "grid", d: lines.join("") }),
    draw("path", { class: "edge", d: "M150 24L30 232H270Z" }),
    draw("polygon", { class: "set", points: points.map((point) => point.map((at) => at.toFixed(3)).join()).join(" ") }),
    ...diamond, ...texts);
  svg.ariaLabel = `The credal set in the triangle of ${names.join(", ")}`;
}
