// Optional: turn the head paths in 3-D by dragging or with the arrow keys. Without this script the three views stand.
"use strict";
(function () {
  var data = JSON.parse(document.getElementById("paths").textContent);
  var names = { true: "--oracle", nearest: "--endpoint_traj", chosen: "--scorer" };
  var dashes = { true: [], nearest: [2, 4], chosen: [7, 4] };

  function draw(canvas, paths, turn) {
    var context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    var width = canvas.width, height = canvas.height, low = [1e9, 1e9, 1e9], high = [-1e9, -1e9, -1e9];
    paths.forEach(function (path) { path.points.forEach(function (p) { for (var i = 0; i < 3; i++) { low[i] = Math.min(low[i], p[i]); high[i] = Math.max(high[i], p[i]); } }); });
    var middle = low.map(function (v, i) { return (v + high[i]) / 2; });
    var reach = Math.max(Math.hypot(high[0] - low[0], high[1] - low[1], high[2] - low[2]), 1e-3);
    var scale = 0.85 * Math.min(width, height) / reach, ca = Math.cos(turn[0]), sa = Math.sin(turn[0]), ce = Math.cos(turn[1]), se = Math.sin(turn[1]);
    function project(p) {
      var f = p[0] - middle[0], l = p[1] - middle[1], u = p[2] - middle[2];
      var right = f * sa - l * ca, depth = f * ca + l * sa;
      return [width / 2 + scale * right, height / 2 - scale * (u * ce + depth * se)];
    }
    context.clearRect(0, 0, width, height);
    paths.forEach(function (path) {
      context.strokeStyle = context.fillStyle = style.getPropertyValue(names[path.kind]).trim();
      context.lineWidth = 2.5 * devicePixelRatio;
      context.setLineDash(dashes[path.kind].map(function (d) { return d * devicePixelRatio; }));
      context.beginPath();
      path.points.forEach(function (p, i) { var q = project(p); if (i) { context.lineTo(q[0], q[1]); } else { context.moveTo(q[0], q[1]); } });
      context.stroke();
      var end = project(path.points[path.points.length - 1]);
      context.beginPath(); context.arc(end[0], end[1], 4 * devicePixelRatio, 0, 7); context.fill();
    });
  }

  function open(box, button) {
    var paths = data[Number(box.dataset.example)], canvas = document.createElement("canvas"), turn = [0.6, 0.5], held = null;
    box.querySelector("svg").replaceWith(canvas);
    button.remove();
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "Head paths in 3-D; drag or use the arrow keys to turn");
    canvas.width = canvas.clientWidth * devicePixelRatio;
    canvas.height = canvas.clientHeight * devicePixelRatio;
    function move(a, e) { turn = [turn[0] + a, Math.max(-1.5, Math.min(1.5, turn[1] + e))]; draw(canvas, paths, turn); }
    canvas.addEventListener("pointerdown", function (event) { held = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", function (event) { if (held) { move((event.clientX - held[0]) / 120, (event.clientY - held[1]) / 120); held = [event.clientX, event.clientY]; } });
    canvas.addEventListener("pointerup", function () { held = null; });
    canvas.addEventListener("keydown", function (event) {
      var step = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[event.key];
      if (step) { event.preventDefault(); move(step[0], step[1]); }
    });
    canvas.focus();
    move(0, 0);
  }

  document.querySelectorAll(".pathbox").forEach(function (box) {
    if (!data[Number(box.dataset.example)].length) { return; }
    var button = document.createElement("button");
    button.type = "button";
    button.textContent = "Turn in 3-D";
    button.addEventListener("click", function () { open(box, button); });
    box.appendChild(button);
  });
  addEventListener("beforeprint", function () { document.querySelectorAll("details").forEach(function (d) { d.open = true; }); });
})();
