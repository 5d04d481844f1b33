// The figures of a scenario: sums over its clients, and the clients with missing or unexpected events.

/** How many clients of each kind are shown in full. */
const CLIENTS_SHOWN_MAX = 3;

/** The figures of a scenario; it has passed if no client has a fault. */
export function figures({ clients, events, publishedMs, started }) {
  const sum = (of) => clients.reduce((total, client) => total + of(client), 0);
  const codes = new Map();
  for (const { account } of clients) {
    for (const [code, count] of account.codes) codes.set(code, (codes.get(code) ?? 0) + count);
  }
  const row = {
    expected: events * clients.length,
    missingJoined: sum(({ account, isJoined }) => (isJoined ? account.missing : 0)),
    repeated: sum(({ account }) => account.repeated),
    faults: sumOf(clients.map(faultsOf)),
    reconnections: sum(({ connections }) => connections - 1),
    codes: Object.fromEntries(codes),
    perSecond: Math.round((events * 1000) / publishedMs),
    seconds: Math.round((Date.now() - started) / 1000),
    details: faultLines(clients),
  };
  row.passed = row.details.length === 0;
  return row;
}

/** Everything that one client must not receive, by kind. */
const faultsOf = ({ account, refused }) => ({ ...account.faults, refused: refused ? 1 : 0 });

function sumOf(rows) {
  const sums = { ...rows[0] };
  for (const row of rows.slice(1)) {
    for (const [kind, count] of Object.entries(row)) sums[kind] += count;
  }
  return sums;
}

/** A line for each client with faults: some clients of each kind, then the number of the others. */
export function faultLines(clients) {
  const lines = [];
  const failed = new Map();
  for (const [index, client] of clients.entries()) {
    const faults = Object.entries(faultsOf(client)).filter(([, count]) => count > 0);
    if (faults.length === 0) continue;
    const kind = `${client.isSocket ? "WebSocket" : "event stream"}, ${client.isJoined ? "joined" : "plain"}`;
    failed.set(kind, (failed.get(kind) ?? 0) + 1);
    if (failed.get(kind) > CLIENTS_SHOWN_MAX) continue;
    const figures = faults.map(([fault, count]) => `${fault} ${count}`).join(", ");
    const missing = client.account.missingRanges();
    const reasons = [missing && `missing are ${missing}`, client.refused].filter(Boolean);
    lines.push([`client ${index} (${kind}): ${figures}`, ...reasons].join("; "));
  }
  for (const [kind, count] of failed) {
    if (count > CLIENTS_SHOWN_MAX) lines.push(`and ${count - CLIENTS_SHOWN_MAX} more (${kind})`);
  }
  return lines;
}
