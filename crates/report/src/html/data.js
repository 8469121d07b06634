"use strict";
// Unpacks the page's data: chunks, utilization levels, and blocks of single activities.

/** Decodes a chunk from base64 and gzip. */
async function chunk(number) {
  const text = document.getElementById(`chunk-${number}`).textContent;
  let packed;
  if (Uint8Array.fromBase64) {
    packed = Uint8Array.fromBase64(text);
  } else {
    const binary = atob(text);
    packed = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) packed[i] = binary.charCodeAt(i);
  }
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** A series and its coarser levels: bins of `levels[k]` are 2^k times as long as those of `levels[0]`. */
class Series {
  constructor(values, header, bins) {
    const base = new Float32Array(bins);
    for (let i = 0; i < bins; i++) base[i] = (values[header.offset + i] / 65535) * header.largest;
    this.phase = header.phase;
    this.levels = [base];
    for (let finer = base; finer.length > 64; finer = this.levels.at(-1)) {
      const coarser = new Float32Array(finer.length / 2);
      for (let i = 0; i < coarser.length; i++) coarser[i] = (finer[2 * i] + finer[2 * i + 1]) / 2;
      this.levels.push(coarser);
    }
  }
}

/** Unpacks every lane's levels. `lane.highest` becomes the value at the top of the lane. */
async function readLevels(timeline) {
  if (timeline.levels === null) return;
  const bytes = await chunk(timeline.levels);
  const values = new Uint16Array(bytes.length / 2);
  for (let i = 0; i < values.length; i++) values[i] = bytes[2 * i] | (bytes[2 * i + 1] << 8);
  for (const lane of timeline.lanes) {
    lane.running = lane.running.map((header) => new Series(values, header, timeline.bins));
    for (const key of ["waiting", "rate"]) {
      if (lane[key]) lane[key] = new Series(values, lane[key], timeline.bins);
    }
    lane.highest = lane.full;
    for (let i = 0; i < timeline.bins; i++) {
      let sum = 0;
      for (const series of lane.running) sum += series.levels[0][i];
      if (sum > lane.highest * 1.001) lane.highest = sum;
    }
  }
}

/** Decodes the columns of a block, which `blocks.rs` writes as unsigned LEB128 numbers. */
function readColumns(bytes, count) {
  let at = 0;
  const column = (ArrayType) => {
    const values = new ArrayType(count);
    for (let i = 0; i < count; i++) {
      let value = 0, scale = 1, byte;
      do {
        byte = bytes[at++];
        value += (byte & 127) * scale;
        scale *= 128;
      } while (byte >= 128);
      values[i] = value;
    }
    return values;
  };
  const start = column(Float64Array);
  const service = column(Float64Array), wait = column(Float64Array), row = column(Uint32Array);
  const phase = column(Uint8Array), stage = column(Float64Array), partition = column(Float64Array);
  const bytesMoved = column(Float64Array);
  for (let i = 1; i < count; i++) start[i] += start[i - 1];
  return { count, start, service, wait, row, phase, stage, partition, bytes: bytesMoved };
}

/** Returns a block's columns if they are unpacked; otherwise unpacks them and then calls `onReady`. */
function columnsOf(block, onReady) {
  if (!block.columns && !block.pending) {
    block.pending = chunk(block.chunk).then((bytes) => {
      block.columns = readColumns(bytes, block.count);
      onReady();
    });
  }
  return block.columns;
}
