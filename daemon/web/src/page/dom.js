// Helpers for the document. Text is inserted as text, never as markup.

export const byId = (id) => document.getElementById(id);

/** Creates an element; properties with a dash, `role` and `scope` become attributes. */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes('-') || name === 'role' || name === 'scope') node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children);
  return node;
}

/** Writes only changed text, so that nothing is laid out or read aloud in vain. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function attribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

/**
 * Keeps `parent`'s children in the order of `items`: creates a child by `make(item)` if `key(item)` is new, updates it by
 * `update(node, item)`, and removes it with its item. Nodes are reused, so focus and scroll positions stay.
 */
export function keep(parent, items, key, make, update) {
  const known = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  items.forEach((item, place) => {
    const name = String(key(item));
    let node = known.get(name);
    known.delete(name);
    if (!node) {
      node = make(item);
      node.dataset.key = name;
    }
    if (parent.children[place] !== node) parent.insertBefore(node, parent.children[place] ?? null);
    update(node, item);
  });
  for (const node of known.values()) node.remove();
}

/** A value with more letters takes two columns where facts stand side by side. */
const LONG = 16;

/** Shows a list of facts, [name, value, level]; leaves out those without a value. */
export function facts(list, rows) {
  const known = rows.filter(([, value]) => value !== null && value !== undefined && value !== '');
  const make = ([name]) => element('div', { className: 'fact' }, element('dt', { textContent: name }), element('dd'));
  keep(list, known, ([name]) => name, make, (row, [, value, level]) => {
    write(row.lastChild, value);
    attribute(row.lastChild, 'data-level', level ?? null);
    row.classList.toggle('long', value.length > LONG);
  });
}

/** Creates an element of an SVG drawing. */
export function drawn(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function path(className, d) {
  return drawn('path', { class: className, d });
}

/** Announces the text to screen readers. */
export function speak(text) {
  write(byId('spoken'), text);
}
