// The trace of the last query or mutation, if the router sends one (`trace.enabled`): its plan, with the requests of
// each fetch as a waterfall beside it.
import { useSyncExternalStore } from "react";

const HEADER = "starling-trace";

const KINDS = {
  root: "root fields",
  rootBelow: "root fields below",
  entities: "entities",
  publish: "publishes",
  request: "request to a topic",
};

/** What the panel shows. Replaced as a whole, so that React sees a change. */
let state = { isWanted: false, isNoted: false, trace: null };
const listeners = new Set();

function change(next) {
  state = { ...state, ...next };
  listeners.forEach((listener) => listener());
}

function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The headers of a request, with that of a trace if one is wanted and the user has not written another value. */
export function withTraceHeader(headers) {
  const isSet = Object.keys(headers).some((name) => name.toLowerCase() === HEADER);
  return state.isWanted && !isSet ? { ...headers, [HEADER]: "1" } : headers;
}

/** Shows the trace of a response. Responses of the schema have none, and are no results of the user. */
export function noteResult(result) {
  if (result?.data?.__schema !== undefined) return;
  change({ isNoted: true, trace: result?.extensions?.trace ?? null });
}

/** A number of microseconds as a time with its unit. */
function time(micros) {
  if (micros < 1e3) return `${Math.round(micros)} µs`;
  return micros < 1e6 ? `${(micros / 1e3).toFixed(1)} ms` : `${(micros / 1e6).toFixed(1)} s`;
}

/** What came from memory for a fetch. */
function describeMemory({ fresh, stale, awaited, staleIfError }) {
  const parts = [
    fresh + stale > 0 && `${fresh + stale} from memory`,
    awaited > 0 && `${awaited} that another operation fetched`,
    staleIfError > 0 && `${staleIfError} old because the subgraph failed`,
  ].filter(Boolean);
  return parts.join(", ");
}

function describeRequest({ status, answerBytes, took, entities, sharing }) {
  const parts = [status === null ? "no response" : `status ${status}, ${answerBytes} bytes`];
  if (entities > 0) parts.push(`${entities} entities`);
  if (sharing === "follower") parts.push("shared with another operation");
  return `${parts.join(", ")} in ${time(took)}`;
}

/** True if the router shows what a request contains (`trace.fetches`). */
const hasContents = ({ text, variables }) => text !== undefined || variables !== undefined;

/** The text and the variables of a request, as far as the router shows them. */
function contentsOf({ text, variables }) {
  const values = variables === undefined ? undefined : JSON.stringify(variables, null, 2);
  return [text, values].filter((it) => it !== undefined).join("\n");
}

function Bar({ began, took, total, label, isBad }) {
  const left = Math.min(100, (100 * began) / total);
  const width = Math.min(100 - left, (100 * took) / total);
  return (
    <span className="starling-track" title={label}>
      <span className={isBad ? "bad" : undefined} style={{ left: `${left}%`, width: `max(2px, ${width}%)` }} />
    </span>
  );
}

function Step({ name, what, began, took, total, isBad, children }) {
  return (
    <li>
      <p>
        <b>{name}</b> <span>{what}</span>
      </p>
      {children ?? <Bar began={began} took={took} total={total} label={time(took)} isBad={isBad} />}
    </li>
  );
}

/** One fetch of the plan with its requests. */
function Fetch({ fetch, plan, trace, total }) {
  const requests = trace.fetches.filter((it) => it.fetch === fetch.id);
  const memory = trace.cache?.fetches.find((it) => it.fetch === fetch.id);
  const after = fetch.dependsOn.map((id) => plan.find((it) => it.id === id)?.subgraph).filter(Boolean);
  const facts = [KINDS[fetch.kind] ?? fetch.kind];
  if (after.length > 0) facts.push(`after ${after.join(", ")}`);
  const texts = requests.map(describeRequest);
  const fromMemory = memory === undefined ? "" : describeMemory(memory);
  if (fromMemory !== "") texts.push(fromMemory);
  if (texts.length === 0) {
    texts.push(trace.sharing === "follower" ? "shared with another operation" : "nothing was requested");
  }
  return (
    <Step name={fetch.subgraph} what={facts.join(", ")}>
      {requests.map((it, index) => (
        <Bar
          key={index}
          began={trace.prepare + it.began}
          took={it.took}
          total={total}
          label={describeRequest(it)}
          isBad={it.status === null || it.status >= 400}
        />
      ))}
      {texts.map((text, index) => (
        <p key={index} className="starling-facts">
          {text}
        </p>
      ))}
      {requests.filter(hasContents).map((it, index) => (
        <details key={index} className="starling-contents">
          <summary>Request</summary>
          <pre>{contentsOf(it)}</pre>
        </details>
      ))}
    </Step>
  );
}

function Waterfall({ trace }) {
  const total = Math.max(1, trace.prepare + trace.execute);
  const plan = trace.plan ?? [];
  const waves = [...new Set(plan.map(({ wave }) => wave))].sort((a, b) => a - b);
  const source = trace.cache?.response;
  return (
    <>
      <p>
        {time(total)} in the router, {trace.bytes} bytes
        {source === "fresh" || source === "stale" ? `; the whole response is from memory (${source})` : ""}
      </p>
      <ol className="starling-waterfall">
        <Step name="prepare" what={time(trace.prepare)} began={0} took={trace.prepare} total={total} />
        {waves.map((wave) => (
          <li key={wave} className="starling-wave">
            <h3>Wave {wave}</h3>
            <ol>
              {plan
                .filter((it) => it.wave === wave)
                .map((fetch) => (
                  <Fetch key={fetch.id} fetch={fetch} plan={plan} trace={trace} total={total} />
                ))}
            </ol>
          </li>
        ))}
        <Step name="execute" what={time(trace.execute)} began={trace.prepare} took={trace.execute} total={total} />
      </ol>
    </>
  );
}

function TracePanel() {
  const { isWanted, isNoted, trace } = useSyncExternalStore(subscribe, () => state);
  return (
    <div className="starling-trace">
      <h2>Trace</h2>
      <label>
        <input
          type="checkbox"
          checked={isWanted}
          onChange={(event) => change({ isWanted: event.target.checked, isNoted: false })}
        />{" "}
        Trace queries and mutations
      </label>
      {trace !== null && <Waterfall trace={trace} />}
      {trace === null && isWanted && !isNoted && <p>Run a query or a mutation to see its plan and its requests.</p>}
      {trace === null && isWanted && isNoted && (
        <p>
          The response has no trace. The router sends one if its configuration has `trace.enabled`, and if `trace.when`
          allows it for this request.
        </p>
      )}
      {trace === null && !isWanted && (
        <p>The plan of an operation, and when its requests to subgraphs began and ended.</p>
      )}
    </div>
  );
}

const TraceIcon = () => (
  <svg viewBox="0 0 24 24" fill="none" stroke="currentColor" strokeWidth="2" strokeLinecap="round">
    <path d="M3 6h9M7 12h10M13 18h8" />
  </svg>
);

export const tracePlugin = { title: "Trace", icon: TraceIcon, content: TracePanel };
