// Clients that follow numbered events and resume with their cursor, over graphql-transport-ws and server-sent events.
// They use no library, so that they count exactly the messages that the router sent.
import http from "node:http";
import WebSocket from "ws";

/** Minimum delay before a client reconnects; the maximum is twice as long. */
const RECONNECT_MS = 100;

const OPERATION_ID = "1";

/** Records which of the events 1 to `events` one client has received. */
export class Account {
  #seen;
  #highest = 0;
  #highestOfConnection = 0;
  received = 0;
  outOfOrder = 0;
  repeated = 0;
  /** Repetitions that no reconnection explains. */
  repeatedOnConnection = 0;
  /** Events that `extensions.lost` reported as lost. */
  lost = 0;
  /** How often `extensions.gap` was reported. */
  gaps = 0;
  /** Results whose event could not be recognised. */
  unrecognised = 0;
  /** Error codes with their counts. */
  codes = new Map();

  constructor(events) {
    this.events = events;
    this.#seen = new Uint8Array(events + 1);
  }

  onConnected() {
    this.#highestOfConnection = 0;
  }

  onResult({ data, errors, extensions }) {
    for (const error of errors ?? []) this.onError(error);
    this.lost += extensions?.lost ?? 0;
    this.gaps += extensions?.gap ? 1 : 0;
    const number = data?.flightMoved?.altitude;
    if (number === undefined || number === null) {
      if (data) this.unrecognised += 1;
      return;
    }
    if (number < 1) return;
    if (this.#seen[number]) {
      this.repeated += 1;
      if (number <= this.#highestOfConnection) this.repeatedOnConnection += 1;
    } else {
      this.#seen[number] = 1;
      this.received += 1;
      if (number < this.#highest) this.outOfOrder += 1;
    }
    this.#highest = Math.max(this.#highest, number);
    this.#highestOfConnection = Math.max(this.#highestOfConnection, number);
  }

  onError(error) {
    const code = error.extensions?.code ?? "none";
    this.codes.set(code, (this.codes.get(code) ?? 0) + 1);
  }

  get missing() {
    return this.events - this.received;
  }

  /** Everything that a client must not receive, by kind. */
  get faults() {
    const { missing, outOfOrder, repeatedOnConnection, lost, gaps, unrecognised } = this;
    return { missing, outOfOrder, repeatedOnConnection, lost, gaps, unrecognised };
  }

  /** The missing numbers as ranges, such as `17-20, 33`; at most `most` of them. */
  missingRanges(most = 10) {
    const ranges = [];
    for (let number = 1; number <= this.events; number += 1) {
      if (this.#seen[number]) continue;
      const first = number;
      while (number < this.events && !this.#seen[number + 1]) number += 1;
      ranges.push(first === number ? `${first}` : `${first}-${number}`);
    }
    return ranges.length > most ? `${ranges.slice(0, most).join(", ")}, … (${ranges.length} ranges)` : ranges.join(", ");
  }
}

/** The common part of both transports: the cursor, the record of events, and reconnecting. */
class Client {
  /** Connections on which the router served this client; failed attempts are not counted. */
  connections = 0;
  cursor = undefined;
  /** Whether a result has been received, and with it a cursor. */
  hasBegun = false;
  /** The code of an error that reconnecting cannot resolve. */
  refused = null;
  #isClosed = false;
  #timer = null;

  constructor({ address, query, events }) {
    this.address = address;
    this.query = query;
    this.account = new Account(events);
  }

  get request() {
    const { query, cursor } = this;
    return { query, ...(cursor !== undefined && { extensions: { cursor } }) };
  }

  /** The router serves this client from now on. */
  onConnected() {
    this.connections += 1;
    this.account.onConnected();
  }

  /** The connection was lost, or the operation was refused for a temporary reason. */
  onEnd() {
    if (this.#isClosed || this.refused || this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.open();
    }, RECONNECT_MS * (1 + Math.random()));
  }

  onResult(result) {
    this.account.onResult(result);
    this.onPosition(result.extensions?.cursor);
    if (result.data) this.hasBegun = true;
  }

  onPosition(cursor) {
    if (cursor) this.cursor = cursor;
  }

  onRefusal(errors) {
    for (const error of errors) {
      this.account.onError(error);
      const code = error.extensions?.code ?? "";
      if (code.startsWith("CURSOR_")) this.refused = code;
    }
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.end();
  }
}

export class SocketClient extends Client {
  #socket;

  open() {
    const socket = new WebSocket(`ws://${this.address}/graphql`, "graphql-transport-ws", { perMessageDeflate: false });
    this.#socket = socket;
    const send = (message) => socket.send(JSON.stringify(message));
    socket.on("open", () => send({ type: "connection_init" }));
    socket.on("message", (text) => {
      const { type, payload } = JSON.parse(text);
      if (type === "connection_ack") {
        this.onConnected();
        send({ id: OPERATION_ID, type: "subscribe", payload: this.request });
      } else if (type === "next") this.onResult(payload);
      else if (type === "ping") {
        this.onPosition(payload?.cursor);
        send({ type: "pong", payload });
      } else if (type === "error") {
        this.onRefusal(payload);
        socket.close();
      } else if (type === "complete") socket.close();
    });
    socket.on("error", () => {});
    socket.on("close", () => this.onEnd());
  }

  end() {
    this.#socket.terminate();
  }
}

export class EventStreamClient extends Client {
  #request;

  open() {
    const request = http.request(`http://${this.address}/graphql`, {
      method: "POST",
      agent: false,
      headers: { "content-type": "application/json", accept: "text/event-stream" },
    });
    this.#request = request;
    request.on("response", (response) => {
      response.setEncoding("utf8");
      let rest = "";
      let whole = "";
      const isStream = (response.headers["content-type"] ?? "").startsWith("text/event-stream");
      if (isStream) this.onConnected();
      response.on("data", (text) => {
        if (!isStream) {
          whole += text;
          return;
        }
        const blocks = (rest + text).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) this.#onBlock(block);
      });
      response.on("end", () => {
        if (!isStream) this.#onRefusalText(whole);
      });
      response.on("error", () => {});
      response.on("close", () => this.onEnd());
    });
    request.on("error", () => this.onEnd());
    request.end(JSON.stringify(this.request));
  }

  #onBlock(block) {
    let id;
    let event;
    let data;
    for (const line of block.split("\n")) {
      if (line.startsWith("id: ")) id = line.slice(4);
      else if (line.startsWith("event: ")) event = line.slice(7);
      else if (line.startsWith("data: ")) data = line.slice(6);
    }
    if (event === "next") {
      const result = JSON.parse(data);
      if (result.data) this.onResult(result);
      else this.onRefusal(result.errors ?? []);
    } else {
      this.onPosition(id);
    }
  }

  #onRefusalText(text) {
    try {
      this.onRefusal(JSON.parse(text).errors ?? []);
    } catch {
      // The body comes from a proxy or from a router that is shutting down: the client tries again.
    }
  }

  end() {
    this.#request.destroy();
  }
}
