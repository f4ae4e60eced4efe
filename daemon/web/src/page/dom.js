// Small help with the document. Text goes in as text, never as markup.

export const byId = (id) => document.getElementById(id);

/** A new element; `properties` with a dash, or of SVG, are attributes. */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes('-') || name === 'role' || name === 'scope') node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children);
  return node;
}

/** Writes only what differs, so that nothing is laid out, or read aloud, for nothing. */
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
 * Keeps `parent`'s children in the order of `items`: made by `make(item)` when `key(item)` is new, brought up to date by
 * `update(node, item)`, gone when their item is. Focus and scroll positions stay, because nodes do.
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

/** A list of facts, [name, value, level]; those without a value are left out. */
export function facts(list, rows) {
  const told = rows.filter(([, value]) => value !== null && value !== undefined && value !== '');
  const make = ([name]) => element('div', { className: 'contents' }, element('dt', { textContent: name }), element('dd'));
  keep(list, told, ([name]) => name, make, (row, [, value, level]) => {
    write(row.lastChild, value);
    attribute(row.lastChild, 'data-level', level ?? null);
  });
}

/** The path of an SVG drawing. */
export function path(className, d) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  node.setAttribute('class', className);
  node.setAttribute('d', d);
  return node;
}

/** Says it to who cannot see it. */
export function speak(text) {
  write(byId('spoken'), text);
}
