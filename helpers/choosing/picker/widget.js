// The picker's controls. Every change goes to the kernel, which sends the card back as HTML. ipywidgets keeps one
// message in flight and of the changes that wait the newest, so that a drag never queues. So that it does not wait
// either, the cards of the slider's lengths are fetched beforehand, those nearest to the thumb first.

const grouped = new Intl.NumberFormat("en-US");
const SETTLED = 400; // ms without a change until a screen reader is told, and cards are fetched
const FETCHED = 24; // cards a message

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function labelled(text, control) {
  control.ariaLabel = text; // of a label with a menu inside, the choices would be part
  return make("label", { className: "picker-field" }, make("span", { textContent: text }), control);
}

function menu(choices) {
  const node = make("select");
  choices.forEach(([value, text]) => node.add(new Option(text, JSON.stringify(value))));
  return node;
}

function nearest(lengths, n) {
  const off = lengths.map((length) => Math.abs(Math.log(length / n)));
  return off.indexOf(Math.min(...off));
}

async function copy(button) {
  const code = button.previousElementSibling;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code); // not allowed to write: leave it selected for the keyboard
    button.textContent = "Selected";
  }
}

function render({ model, el }) {
  const { lengths, common, dtypes, rows, targets } = model.get("options");
  const longest = lengths.at(-1);

  const slider = make("input", { type: "range", min: 0, max: lengths.length - 1, step: 1 });
  const exact = make("input", { type: "number", min: 1, max: longest, step: 1, required: true });
  const named = menu([[null, "another length"], ...common]);
  const menus = { dtype: menu(dtypes), n_rows: menu(rows), gpu: menu(targets) };
  const fault = make("p", { className: "picker-fault", hidden: true });
  const card = make("div");
  const status = make("p", { className: "picker-unseen", role: "status" });

  exact.ariaLabel = "Exact row length";
  const ask = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };

  const showFault = (wrong) => {
    const n = model.get("n_cols");
    const columns = n === 1 ? "column" : "columns";
    fault.textContent =
      `A row has a whole number of columns, from 1 to ${grouped.format(longest)}. ` +
      `What stands below is still for ${grouped.format(n)} ${columns}.`;
    fault.hidden = !wrong;
    exact.ariaInvalid = wrong;
    card.classList.toggle("picker-stale", wrong);
  };

  const showQuestion = () => {
    const n = model.get("n_cols");
    slider.value = nearest(lengths, n);
    slider.ariaValueText = `${grouped.format(n)} ${n === 1 ? "column" : "columns"}`;
    if (Number(exact.value) !== n) exact.value = n;
    named.value = common.some(([length]) => length === n) ? JSON.stringify(n) : "null";
    for (const [name, node] of Object.entries(menus)) node.value = JSON.stringify(model.get(name));
    showFault(false);
  };

  const fetched = new Map();
  let fetching = false;
  const settings = () => Object.fromEntries(Object.keys(menus).map((name) => [name, model.get(name)]));
  const same = (a, b) => Object.keys(menus).every((name) => a[name] === b[name]);
  const fetchNearest = () => {
    const missing = lengths.map((n, index) => [Math.abs(index - slider.valueAsNumber), n]).filter(([, n]) => !fetched.has(n));
    if (fetching || !missing.length || !el.isConnected) return;
    fetching = true;
    missing.sort(([a], [b]) => a - b);
    model.send({ lengths: missing.slice(0, FETCHED).map(([, n]) => n), settings: settings() });
  };
  const keep = (message) => {
    fetching = false;
    if (same(message.settings, settings())) message.cards.forEach(([n, html]) => fetched.set(n, html));
    fetchNearest();
  };
  const forgetCompiling = () => fetched.forEach((html, n) => html.includes('data-xray="compiling"') && fetched.delete(n));

  let settling;
  const settle = () => {
    const why = card.querySelector(".picker-why").textContent;
    if (status.textContent !== why) status.textContent = why;
    fetchNearest();
  };
  let shown;
  const put = (html) => {
    clearTimeout(settling);
    settling = setTimeout(settle, SETTLED);
    if (html === shown) return;
    shown = html;
    const copying = card.contains(document.activeElement);
    card.innerHTML = html;
    if (copying) card.querySelector("button").focus();
  };
  const showCard = () => {
    const html = model.get("card");
    const n = Number(html.match(/data-n-cols="(\d+)"/)[1]);
    if (fetched.has(n) && fetched.get(n) !== html) forgetCompiling(); // others may have their registers by now too
    if (n === model.get("n_cols")) put(html);
  };

  slider.addEventListener("input", () => {
    const n = lengths[slider.valueAsNumber];
    ask("n_cols", n);
    if (fetched.has(n)) put(fetched.get(n));
  });
  exact.addEventListener("input", () => {
    const valid = exact.checkValidity();
    showFault(!valid);
    if (valid) ask("n_cols", exact.valueAsNumber);
  });
  exact.addEventListener("blur", () => {
    exact.value = model.get("n_cols"); // the fault stays, which says why the length is another than was typed
    exact.ariaInvalid = false;
    card.classList.remove("picker-stale");
  });
  named.addEventListener("change", () => {
    const n = JSON.parse(named.value);
    n === null ? showQuestion() : ask("n_cols", n);
  });
  for (const [name, node] of Object.entries(menus)) {
    node.addEventListener("change", () => ask(name, JSON.parse(node.value)));
  }
  card.addEventListener("click", ({ target }) => target.matches("[data-copy]") && copy(target));

  // JupyterLab's shortcuts of one key move, add and delete cells; in here these keys belong to the controls.
  const claim = ({ target, key, shiftKey, ctrlKey, altKey, metaKey }) => {
    const theirs = ctrlKey || altKey || metaKey || (shiftKey && key === "Enter");
    if (el.contains(target)) target.toggleAttribute("data-lm-suppress-shortcuts", !theirs);
  };
  window.addEventListener("keydown", claim, { capture: true });

  model.on("change:n_cols change:n_rows change:dtype change:gpu", showQuestion);
  model.on("change:n_rows change:dtype change:gpu", () => fetched.clear());
  model.on("change:card", showCard);
  model.on("msg:custom", keep);

  el.classList.add("picker");
  el.append(
    make(
      "div",
      { className: "picker-controls" },
      make("div", { className: "picker-length" }, labelled("Row length", slider), exact),
      labelled("By name", named),
      labelled("dtype", menus.dtype),
      labelled("Rows", menus.n_rows),
      labelled("GPU", menus.gpu),
      fault,
    ),
    card,
    status,
  );
  showQuestion();
  showCard();
  return () => window.removeEventListener("keydown", claim, { capture: true });
}

export default { render };
