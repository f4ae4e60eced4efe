// The recent past of each camera: one point per second from the status for the lines, and of the last minute of the stream
// every frame's timings, for exact percentiles, and the number of detections by label.

/** The stages of a frame, in their order. */
export const STAGES = ['capture', 'queue', 'preprocess', 'infer', 'postprocess', 'total'];
/** Points of a line: two minutes. */
export const POINTS = 120;
const RECENT_MS = 60_000;
/** The span of messages that are kept, counted and forgotten together. */
const PART_MS = 1000;
/** A camera of 120 frames a second for a minute; the recent past of a faster one is shorter. */
const MOST_FRAMES = 7200;

export class History {
  #cameras = new Map();
  /** The longest time in each bucket of a stage, as the status has them. */
  #bounds = [];

  #of(name) {
    let camera = this.#cameras.get(name);
    if (!camera) {
      camera = { parts: [], frames: 0, points: [], since: null, tracks: null };
      this.#cameras.set(name, camera);
    }
    return camera;
  }

  /** Adds a frame's timings and labels. */
  frame(message, now) {
    const camera = this.#of(message.camera);
    camera.since ??= now;
    let part = camera.parts.at(-1);
    if (!part || now - part.at >= PART_MS) {
      part = { at: now, timings: [], labels: new Map() };
      camera.parts.push(part);
    }
    camera.frames += 1;
    const tracks = message.detections.filter(({ track }) => track).length;
    if (tracks > 0 || camera.tracks !== null) camera.tracks = tracks;
    const frame = part.timings.push(message.timings_us);
    for (const { label } of message.detections) {
      const counts = part.labels.get(label) ?? { detections: 0, frames: 0, last: 0 };
      counts.detections += 1;
      if (counts.last !== frame) counts.frames += 1;
      counts.last = frame;
      part.labels.set(label, counts);
    }
    forget(camera, now);
  }

  /** Forgets all messages, because some were missed: the stream was closed. */
  interrupted() {
    for (const camera of this.#cameras.values()) Object.assign(camera, { parts: [], frames: 0, since: null, tracks: null });
  }

  /** Adds a point to every line. */
  status(status, now) {
    const names = new Set(status.cameras.map((camera) => camera.name));
    for (const name of this.#cameras.keys()) if (!names.has(name)) this.#cameras.delete(name);
    for (const facts of status.cameras) {
      const camera = this.#of(facts.name);
      const buckets = facts.stages.total?.buckets;
      if (buckets) this.#bounds = buckets.map(([bound]) => bound);
      forget(camera, now);
      // Of the last five seconds, so that the line shows what happens now.
      const ages = times(camera.parts.filter((part) => now - part.at < 5000), 'total');
      camera.points.push({ fps: facts.fps, age: quantile(ages, 0.99) });
      if (camera.points.length > POINTS) camera.points.shift();
    }
  }

  /** Returns the number of tracks in the newest message; null if none of the camera's messages had one. */
  tracks(name) {
    return this.#of(name).tracks;
  }

  points(name) {
    return this.#of(name).points;
  }

  /** Returns the recent past of a camera's stage, in the form that the status has for the time since the start. */
  stage(name, stage) {
    const sorted = times(this.#of(name).parts, stage);
    const counts = this.#bounds.map(() => 0);
    for (const time of sorted) {
      const bucket = this.#bounds.findIndex((bound) => bound === null || time <= bound);
      if (bucket >= 0) counts[bucket] += 1;
    }
    return {
      count: sorted.length,
      p50_us: quantile(sorted, 0.5),
      p99_us: quantile(sorted, 0.99),
      max_us: sorted.at(-1) ?? null,
      buckets: this.#bounds.map((bound, at) => [bound, counts[at]]),
    };
  }

  /** Returns the seconds and frames that the recent past has, and by label its detections and the frames that have some. */
  detections(name, now) {
    const camera = this.#of(name);
    const labels = new Map();
    for (const part of camera.parts) {
      for (const [label, { detections, frames }] of part.labels) {
        const counts = labels.get(label) ?? { detections: 0, frames: 0 };
        counts.detections += detections;
        counts.frames += frames;
        labels.set(label, counts);
      }
    }
    const seconds = camera.since === null ? 0 : Math.min(RECENT_MS, now - camera.since) / 1000;
    return { seconds, frames: camera.frames, labels };
  }

  /** Returns the 99th percentile of the ages of all cameras' frames in the recent past. */
  ageOfAll() {
    const parts = [...this.#cameras.values()].flatMap((camera) => camera.parts);
    return quantile(times(parts, 'total'), 0.99);
  }

  /** Forgets everything, because the daemon restarted. */
  clear() {
    this.#cameras.clear();
  }
}

/** Forgets a camera's oldest parts. */
function forget(camera, now) {
  const { parts } = camera;
  while (parts.length > 0 && (now - parts[0].at > RECENT_MS || (camera.frames > MOST_FRAMES && parts.length > 1))) {
    const { at, timings } = parts.shift();
    camera.frames -= timings.length;
    camera.since = at + PART_MS;
  }
}

/** Returns the times of a stage, sorted. */
function times(parts, stage) {
  return parts.flatMap((part) => part.timings.map((timings) => timings[stage])).sort((a, b) => a - b);
}

function quantile(sorted, part) {
  if (sorted.length === 0) return null;
  return sorted[Math.min(sorted.length, Math.max(1, Math.ceil(sorted.length * part))) - 1];
}
