// The box with the details of a square, and the keys of the matrix.
// The box stands below its square, or above where the window ends. The squares are one stop of the
// Tab key, and the arrow keys lead from one to the next of its row or column.
const box = document.querySelector("output");
const squares = [...document.querySelectorAll("svg.matrix g")].map((g) => {
  const [title, rect] = g.children, text = title.textContent;
  title.remove(); // else the browser shows it as well
  g.setAttribute("role", "button");
  g.setAttribute("aria-label", text);
  g.setAttribute("tabindex", -1);
  return {g, text, x: rect.x.baseVal.value, y: rect.y.baseVal.value};
});
const squareOf = (node) => {
  const g = node?.closest?.("svg.matrix g");
  return squares.find((square) => square.g === g);
};
let shown = null, isKept = false;

function place() {
  if (!shown) return;
  const at = shown.g.getBoundingClientRect(), gap = 6, edge = 8;
  const {offsetWidth: width, offsetHeight: height} = box;
  const hasRoomBelow = at.bottom + gap + height + edge <= innerHeight;
  const top = hasRoomBelow ? at.bottom + gap : at.top - gap - height;
  const within = (value, room) => Math.max(edge, Math.min(value, room - edge));
  box.style.left = `${within(at.left, innerWidth - width)}px`;
  box.style.top = `${within(top, innerHeight - height)}px`;
}

// A box that is kept stays until Escape or another click; others leave with the pointer.
function show(square, keep = false) {
  shown = square;
  isKept = keep;
  box.hidden = !square;
  box.textContent = square ? square.text : "";
  box.style.left = box.style.top = "0"; // its width does not depend on where it was
  place();
}

function focus(square) {
  for (const other of squares) other.g.setAttribute("tabindex", other === square ? 0 : -1);
  square.g.focus({preventScroll: true});
  square.g.scrollIntoView({block: "nearest", inline: "nearest"});
  if (isKept) show(square, true);
}

function next(square, key) {
  const [along, across] = /Up|Down/.test(key) ? ["y", "x"] : ["x", "y"];
  const sign = /Up|Left|Home/.test(key) ? -1 : 1;
  const ahead = squares
    .filter((other) => other[across] === square[across])
    .filter((other) => sign * (other[along] - square[along]) > 0)
    .sort((a, b) => sign * (a[along] - b[along]));
  return /Home|End/.test(key) ? ahead.at(-1) : ahead[0];
}

squares[0]?.g.setAttribute("tabindex", 0);
document.querySelector("svg.matrix").setAttribute("role", "group");
document.addEventListener("pointerover", (event) => {
  if (!isKept && event.target !== box) show(squareOf(event.target));
});
document.addEventListener("click", (event) => {
  const square = squareOf(event.target);
  if (square) {
    focus(square);
    show(square, true);
  } else if (event.target !== box) {
    show(null);
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") return show(null);
  const square = squareOf(document.activeElement);
  if (!square || event.ctrlKey || event.altKey || event.metaKey) return;
  if (!/^(Enter| |Home|End|Arrow(Up|Down|Left|Right))$/.test(event.key)) return;
  event.preventDefault();
  if (event.key === "Enter" || event.key === " ") return show(square, true);
  const found = next(square, event.key);
  if (found) focus(found);
});
for (const kind of ["scroll", "resize"]) addEventListener(kind, place, true);
