// Reads the daemon's status every second, and every message as it is published. Both reconnect by themselves.

/** Interval of the status. */
const STATUS_MS = 1000;
/** Timeout of a request. */
const TIMEOUT_MS = 4000;
const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 2000;
/** A hidden tab closes the stream after this time. */
const HIDDEN_MS = 10_000;

/** Requests JSON from a path relative to the page, which a proxy may serve below a path of its own. Reloads the page if the token is missing, which shows the login form. */
export async function ask(path, options = {}) {
  const signal = AbortSignal.timeout(options.timeout ?? TIMEOUT_MS);
  const response = await fetch(path, { cache: 'no-store', signal, ...options });
  if (response.status === 401) location.reload();
  const body = await response.json().catch(() => null);
  return { ok: response.ok, status: response.status, body, version: response.headers.get('etag') };
}

/** Sleeps; ends early when the tab becomes visible. */
function pause(ms) {
  return new Promise((done) => {
    const end = () => {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', end);
      done();
    };
    const timer = setTimeout(end, ms);
    document.addEventListener('visibilitychange', end);
  });
}

/** Calls `arrived(status)` for each status, and `lost(sentence, since)` while there is none. */
export async function followStatus(arrived, lost) {
  let since = null;
  for (;;) {
    const began = performance.now();
    let trouble = null;
    let answer = null;
    try {
      answer = await ask('api/v1/status');
      if (!answer.ok || !answer.body) trouble = answer.body?.detail ?? `The status request failed with ${answer.status}`;
    } catch {
      trouble = 'No answer from visiond';
    }
    if (trouble === null) {
      since = null;
      arrived(answer.body);
    } else {
      since ??= Date.now();
      lost(trouble, since);
    }
    const wait = document.hidden ? 5 * STATUS_MS : trouble === null ? STATUS_MS : STATUS_MS / 2;
    await pause(Math.max(100, wait - (performance.now() - began)));
  }
}

/** The messages of all cameras. */
export class Stream {
  #socket = null;
  #retry = FIRST_RETRY_MS;
  #timer = 0;
  #on;

  /** Calls `frame(message)` and `event(message)` for each message, `opened()` when events may have been missed, and `closed()`. */
  constructor(on) {
    this.#on = on;
    document.addEventListener('visibilitychange', () => {
      clearTimeout(this.#timer);
      if (document.hidden) this.#timer = setTimeout(() => this.#close(), HIDDEN_MS);
      else this.now();
    });
    this.#open();
  }

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Opens the stream if it is closed, because the daemon has just answered a request. */
  now() {
    if (!this.#socket && !document.hidden) this.#open();
  }

  #open() {
    clearTimeout(this.#timer);
    const socket = new WebSocket(new URL('api/v1/stream?messages=frames,events', location.href).href.replace(/^http/, 'ws'));
    this.#socket = socket;
    socket.onopen = () => {
      this.#retry = FIRST_RETRY_MS;
      this.#on.opened();
    };
    socket.onmessage = (event) => {
      const message = JSON.parse(event.data);
      if (message.camera && message.detections) this.#on.frame(message);
      else if (message.event) this.#on.event(message);
      else if (message.lost) this.#on.opened();
    };
    socket.onclose = () => {
      if (this.#socket !== socket) return;
      this.#socket = null;
      this.#on.closed();
      // Random, so that not all pages reconnect at once after a restart of the daemon.
      if (!document.hidden) this.#timer = setTimeout(() => this.#open(), this.#retry * (0.5 + Math.random()));
      this.#retry = Math.min(this.#retry * 2, LAST_RETRY_MS);
    };
  }

  #close() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.#on.closed();
  }
}
