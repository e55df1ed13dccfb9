// Optional: rows are switched and sorted, head paths turned in 3-D. Without this script all rows and three views stand.
"use strict";
(function () {
  var data = JSON.parse(document.getElementById("paths").textContent);
  var names = { true: "--oracle", nearest: "--endpoint_traj", chosen: "--scorer" };
  var dashes = { true: [], nearest: [2, 4], chosen: [7, 4] };
  var axes = [["ahead", [1, 0, 0]], ["left", [0, 1, 0]], ["up", [0, 0, 1]]];

  function bounds(paths) {
    var low = [1e9, 1e9, 1e9], high = [-1e9, -1e9, -1e9];
    paths.forEach(function (path) { path.points.forEach(function (p) { for (var i = 0; i < 3; i++) { low[i] = Math.min(low[i], p[i]); high[i] = Math.max(high[i], p[i]); } }); });
    return { middle: low.map(function (v, i) { return (v + high[i]) / 2; }), reach: Math.max(Math.hypot(high[0] - low[0], high[1] - low[1], high[2] - low[2]), 1e-3) };
  }

  // Forward, left, up -> right and up on the screen, seen from behind, turned by an azimuth and raised by an elevation.
  function seen(p, turn) {
    var ca = Math.cos(turn[0]), sa = Math.sin(turn[0]), depth = p[0] * ca + p[1] * sa;
    return [p[0] * sa - p[1] * ca, p[2] * Math.cos(turn[1]) + depth * Math.sin(turn[1])];
  }

  function roundLength(most) {
    var step = Math.pow(10, Math.floor(Math.log10(most)));
    return step * (5 * step <= most ? 5 : 2 * step <= most ? 2 : 1);
  }

  function draw(canvas, paths, turn, unit) {
    var style = getComputedStyle(document.documentElement), dpr = devicePixelRatio, context = canvas.getContext("2d");
    canvas.width = Math.round(canvas.clientWidth * dpr);
    canvas.height = Math.round(canvas.clientHeight * dpr);
    context.scale(dpr, dpr);
    var width = canvas.clientWidth, height = canvas.clientHeight, box = bounds(paths), scale = 0.92 * Math.min(width, height) / box.reach;
    function project(p) {
      var q = seen(p.map(function (v, i) { return v - box.middle[i]; }), turn);
      return [width / 2 + scale * q[0], height / 2 - scale * q[1]];
    }
    function line(points, dash, thick) {
      context.setLineDash(dash);
      context.lineWidth = thick;
      context.beginPath();
      points.forEach(function (q, i) { if (i) { context.lineTo(q[0], q[1]); } else { context.moveTo(q[0], q[1]); } });
      context.stroke();
    }
    paths.forEach(function (path) {
      context.strokeStyle = context.fillStyle = style.getPropertyValue(names[path.kind]).trim();
      var points = path.points.map(project), end = points[points.length - 1];
      line(points, dashes[path.kind], 2.2);
      context.beginPath(); context.arc(end[0], end[1], 4, 0, 7); context.fill();
    });
    context.strokeStyle = context.fillStyle = style.getPropertyValue("--ink").trim();
    context.font = "11px sans-serif";
    var start = project(paths[0].points[0]), bar = roundLength(box.reach / 3);
    line([[start[0] - 5, start[1]], [start[0] + 5, start[1]]], [], 1.6);
    line([[start[0], start[1] - 5], [start[0], start[1] + 5]], [], 1.6);
    line([[12, height - 14], [12 + bar * scale, height - 14]], [], 2);
    context.fillText(Number(bar.toPrecision(1)) + " " + unit, 12, height - 20);
    axes.forEach(function (axis) {
      var q = seen(axis[1], turn), x = width - 54, y = 50;
      line([[x, y], [x + 26 * q[0], y - 26 * q[1]]], [], 1.2);
      context.fillText(axis[0], x + 34 * q[0] - 10, y - 34 * q[1] + 4);
    });
  }

  function open(box, button) {
    var paths = data[Number(box.dataset.example)], canvas = document.createElement("canvas"), turn = [0.6, 0.5], held = null;
    box.querySelector("svg").replaceWith(canvas);
    button.remove();
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "Head paths in 3-D; drag or use the arrow keys to turn");
    function show() { draw(canvas, paths, turn, box.dataset.unit); }
    function move(a, e) { turn = [turn[0] + a, Math.max(-1.5, Math.min(1.5, turn[1] + e))]; show(); }
    function drop() { held = null; }
    canvas.addEventListener("pointerdown", function (event) { held = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", function (event) { if (held) { move((event.clientX - held[0]) / 120, (event.clientY - held[1]) / 120); held = [event.clientX, event.clientY]; } });
    canvas.addEventListener("pointerup", drop);
    canvas.addEventListener("pointercancel", drop);
    canvas.addEventListener("keydown", function (event) {
      var step = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[event.key];
      if (step) { event.preventDefault(); move(step[0], step[1]); }
    });
    addEventListener("resize", show);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
    matchMedia("print").addEventListener("change", show);
    canvas.focus();
    show();
  }

  document.querySelectorAll(".pathbox").forEach(function (box) {
    if (!data[Number(box.dataset.example)].length) { return; }
    var button = document.createElement("button");
    button.type = "button";
    button.textContent = "Turn in 3-D";
    button.addEventListener("click", function () { open(box, button); });
    box.appendChild(button);
  });
  // A row is switched off in every table, chart, legend and example.
  function switchRow(id, isShown) {
    document.querySelectorAll('[data-row="' + id + '"], svg.chart .' + id).forEach(function (at) { at.style.display = isShown ? "" : "none"; });
  }

  var rows = Array.from(document.querySelectorAll("#rows [data-of]")), nav = document.querySelector("nav");
  if (nav && rows.length) {
    var box = document.createElement("details"), title = document.createElement("summary");
    box.className = "switches";
    title.textContent = "Switch rows";
    box.appendChild(title);
    rows.forEach(function (row) {
      var line = document.createElement("label"), tick = document.createElement("input");
      tick.type = "checkbox";
      tick.checked = true;
      tick.addEventListener("change", function () { switchRow(row.dataset.of, tick.checked); });
      line.append(tick, row.querySelector(".chip").cloneNode(), row.dataset.name);
      box.appendChild(line);
    });
    nav.appendChild(box);
  }

  // A click on a column sorts the rows within each group: largest first, smallest first, as they were.
  function sort(table, head, metric) {
    var turn = { none: "descending", descending: "ascending", ascending: "none" }[head.getAttribute("aria-sort") || "none"];
    table.querySelectorAll("thead th[aria-sort]").forEach(function (other) { other.setAttribute("aria-sort", "none"); });
    head.setAttribute("aria-sort", turn);
    function value(row) {
      var cell = Array.from(row.cells).find(function (c) { return c.dataset.key && c.dataset.key.split("|").pop() === metric; });
      return cell ? Number(cell.dataset.value) : NaN;
    }
    Array.from(table.tBodies).forEach(function (body) {
      var held = Array.from(body.querySelectorAll("tr[data-row]"));
      held.forEach(function (row, i) { row.dataset.at = row.dataset.at || i; });
      held.sort(function (a, b) {
        var x = value(a), y = value(b), before = a.dataset.at - b.dataset.at;
        if (turn === "none" || x === y || (isNaN(x) && isNaN(y))) { return before; }
        if (isNaN(x) || isNaN(y)) { return isNaN(x) ? 1 : -1; }
        return turn === "descending" ? y - x : x - y;
      });
      held.forEach(function (row) { body.appendChild(row); });
    });
  }

  document.querySelectorAll("table.results th[data-metric]").forEach(function (head) {
    var button = document.createElement("button");
    button.type = "button";
    button.className = "sorts";
    button.append.apply(button, Array.from(head.childNodes));
    head.appendChild(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", function () { sort(head.closest("table"), head, head.dataset.metric); });
  });

  // A link into something folded opens it.
  function unfold() {
    var target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (var at = target; at; at = at.parentElement) { if (at.tagName === "DETAILS") { at.open = true; } }
    if (target) { target.scrollIntoView(); }
  }
  addEventListener("hashchange", unfold);
  if (location.hash) { unfold(); }
})();
