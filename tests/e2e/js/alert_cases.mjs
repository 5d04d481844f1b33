// For each alert rule, figures at which it fires and figures at which it does not, for `promtool test rules`.
//
// A case begins at the time 0 with a sample each minute, and the rules are evaluated each minute. `fires` are the
// alerts that fire at the minute `at`, each with its labels (without `alertname` and `severity`) and its summary.
// Series that are not in its labels fire nothing. At the minute `before` no alert of the rule fires yet. Rates are
// known from the minute 1 on, so an alert with `for: 5m` fires from the minute 6 on. Cases ask a minute or two later:
// versions of Prometheus differ in whether a range includes its first sample.

/** The minutes for which cases have samples. */
const MINUTES = 90;

/** A counter that grows by this number each minute, as promtool writes series. */
const counter = (perMinute) => `0+${perMinute}x${MINUTES}`;

/** A figure that does not change. */
const gauge = (value) => `${value}+0x${MINUTES}`;

/** These samples, of which the last one stays. */
const samples = (...values) => `${values.slice(0, -1).join(" ")} ${gauge(values.at(-1))}`.trim();

/** The name of a series: its metric and labels. */
const seriesOf = (metric, labels) =>
  `${metric}{${Object.entries(labels).map(([name, value]) => `${name}="${value}"`).join()}}`;

/** A counter for each value of a label, with its growth in a minute. `labels` are the labels that all of them have. */
const counters = (metric, label, growth, labels = {}) => Object.fromEntries(
  Object.entries(growth).map(([value, perMinute]) =>
    [seriesOf(metric, { ...labels, [label]: value }), counter(perMinute)]),
);

/** The cumulative buckets of a histogram with 100 requests each minute; the slow ones take from 2.5 to 5 s. */
const durations = (name, labels, slowPerMinute) => Object.fromEntries(
  Object.entries({ 1: 0, 2.5: 100 - slowPerMinute, 5: 100, "+Inf": 100 })
    .map(([le, perMinute]) => [`${name}{${labels},le="${le}"}`, counter(perMinute)]),
);

/** An alert for a growing counter of each router, with nothing else in its rule. */
const growing = (alert, metric, summary) => [
  {
    alert, before: 4, at: 8,
    series: {
      [`${metric}{instance="r1"}`]: counter(1),
      // It was counted before the router was scraped.
      [`${metric}{instance="r2"}`]: gauge(7),
      // It ends by itself.
      [`${metric}{instance="r3"}`]: samples(0, 0, 4),
    },
    fires: [{ labels: { instance: "r1" }, summary }],
  },
];

/** An alert for any of several counters that grow, without a time for which they must. */
const anyGrowing = (alert, metrics, summaryOf) => [
  {
    alert, before: 0, at: 2,
    series: {
      ...Object.fromEntries(metrics.map((metric, index) => [`${metric}{instance="r${index + 1}"}`, counter(1)])),
      ...Object.fromEntries(metrics.map((metric) => [`${metric}{instance="idle"}`, gauge(7)])),
    },
    fires: metrics.map((_, index) => ({ labels: { instance: `r${index + 1}` }, summary: summaryOf(`r${index + 1}`) })),
  },
  {
    // A single increase is no longer new after ten minutes.
    alert, at: 13, fires: [],
    series: Object.fromEntries(metrics.map((metric) => [`${metric}{instance="r1"}`, samples(0, 3)])),
  },
];

/**
 * A case with a series of each of two routers: the alert fires for `r1`, and not for `r2`. `labels` are the labels that
 * both series and the alert have.
 */
const atFirstRouter = ({ alert, before, at, metric, labels = {}, firing, quiet, summary }) => ({
  alert, before, at,
  series: {
    [seriesOf(metric, { ...labels, instance: "r1" })]: firing,
    [seriesOf(metric, { ...labels, instance: "r2" })]: quiet,
  },
  fires: [{ labels: { ...labels, instance: "r1" }, summary }],
});

export const ALERT_CASES = [
  {
    alert: "StarlingDown", before: 2, at: 3,
    series: {
      'up{job="starling",instance="r1"}': samples(1, 1, 0),
      'up{job="starling",instance="r2"}': gauge(1),
      'up{job="starling",instance="r3"}': samples(1, 0, 1),
    },
    fires: [{ labels: { job: "starling", instance: "r1" }, summary: "r1 does not respond to scrapes" }],
  },
  {
    alert: "StarlingDown", before: 0, at: 1,
    series: { 'up{job="another",instance="r1"}': gauge(1) },
    fires: [{ labels: { job: "starling" }, summary: "No router is scraped" }],
  },

  {
    alert: "StarlingErrors", before: 4, at: 7,
    series: counters("starling_operations_total", "outcome", { ok: 54, errors: 6 }, { kind: "query" }),
    fires: [{ labels: {}, summary: "10% of the responses have errors" }],
  },
  {
    alert: "StarlingErrors", at: 7, fires: [],
    series: counters("starling_operations_total", "outcome", { ok: 97, errors: 3 }, { kind: "query" }),
  },
  {
    // Half of the responses, but of two requests a minute.
    alert: "StarlingErrors", at: 20, fires: [],
    series: counters("starling_operations_total", "outcome", { ok: 1, errors: 1 }, { kind: "query" }),
  },

  {
    alert: "StarlingServerErrors", before: 4, at: 7,
    series: counters("starling_http_answers_total", "status", { 200: 97, 503: 3 }),
    fires: [{ labels: {}, summary: "3% of the responses have a status from 500" }],
  },
  {
    alert: "StarlingServerErrors", at: 7, fires: [],
    series: counters("starling_http_answers_total", "status", { 200: 900, 400: 95, 503: 5 }),
  },

  {
    alert: "StarlingSlow", before: 9, at: 12,
    series: durations("starling_operation_duration_seconds_bucket", 'kind="query"', 10),
    // 90 of 100 are faster than 2.5 s: the 99th is nine tenths of the way from there to 5 s.
    fires: [{ labels: {}, summary: "One of a hundred operations takes 4.75s or longer" }],
  },
  {
    alert: "StarlingSlow", at: 12, fires: [],
    series: {
      ...durations("starling_operation_duration_seconds_bucket", 'kind="query"', 0),
      ...durations("starling_operation_duration_seconds_bucket", 'kind="subscription"', 100),
    },
  },

  {
    alert: "StarlingOperationFailing", before: 9, at: 12,
    series: {
      'starling_named_operation_requests_total{operation="Board",kind="query"}': counter(60),
      'starling_named_operation_errors_total{operation="Board",kind="query",code="TIMEOUT"}': counter(36),
      'starling_named_operation_requests_total{operation="Fine",kind="query"}': counter(60),
      'starling_named_operation_errors_total{operation="Fine",kind="query",code="TIMEOUT"}': counter(6),
      'starling_named_operation_requests_total{operation="Rare",kind="query"}': counter(2),
      'starling_named_operation_errors_total{operation="Rare",kind="query",code="TIMEOUT"}': counter(2),
    },
    fires: [{ labels: { operation: "Board" }, summary: "60% of the requests for Board fail" }],
  },

  {
    alert: "StarlingClientFailing", before: 9, at: 12,
    series: {
      'starling_client_requests_total{client="web",client_version="1"}': counter(60),
      'starling_client_errors_total{client="web",client_version="1",code="TIMEOUT"}': counter(6),
      'starling_client_requests_total{client="web",client_version="2"}': counter(60),
      'starling_client_errors_total{client="web",client_version="2",code="TIMEOUT"}': counter(36),
      'starling_client_requests_total{client="rare",client_version="1"}': counter(2),
      'starling_client_errors_total{client="rare",client_version="1",code="TIMEOUT"}': counter(2),
    },
    fires: [{ labels: { client: "web", client_version: "2" }, summary: "60% of the operations of web 2 fail" }],
  },

  ...anyGrowing(
    "StarlingConnectionsRefused",
    [
      "starling_http_connections_refused_total", "starling_http_connections_refused_memory_total",
      "starling_http_accept_failures_total",
    ],
    (instance) => `${instance} refuses connections`,
  ),

  {
    alert: "StarlingOverloaded", before: 2, at: 4,
    series: {
      'starling_admission_refused_total{class="default",reason="queue_full"}': counter(60),
      'starling_admission_refused_total{class="default",reason="client_share"}': counter(60),
      'starling_admission_refused_total{class="sheddable",reason="queue_full"}': counter(60),
      'starling_admission_refused_total{class="greedy",reason="client_share"}': counter(60),
      'starling_admission_refused_total{class="calm",reason="queue_full"}': counter(5),
    },
    fires: [{
      labels: { class: "default" },
      summary: "Requests of the class default are refused because of overload",
    }],
  },

  ...growing(
    "StarlingPreparingOverloaded", "starling_operations_preparing_overloaded_total",
    "r1 gets more new operations than it can plan",
  ),
  ...growing(
    "StarlingLargeRequestsRefused", "starling_http_large_requests_overloaded_total",
    "r1 gets more large requests than it can read",
  ),
  ...growing(
    "StarlingMemoryRefused", "starling_memory_refused_total",
    "r1 refuses work because its memory budget is used up",
  ),

  {
    alert: "StarlingSubgraphFailing", before: 4, at: 7,
    series: {
      'starling_subgraph_requests_total{subgraph="products"}': counter(100),
      'starling_subgraph_failures_total{subgraph="products",kind="connect"}': counter(6),
      'starling_subgraph_failures_total{subgraph="products",kind="status"}': counter(4),
      'starling_subgraph_requests_total{subgraph="users"}': counter(100),
      'starling_subgraph_failures_total{subgraph="users",kind="connect"}': counter(4),
      // The time of the client's request was over.
      'starling_subgraph_requests_total{subgraph="reviews"}': counter(100),
      'starling_subgraph_failures_total{subgraph="reviews",kind="deadline"}': counter(50),
    },
    fires: [{ labels: { subgraph: "products" }, summary: "10% of the requests to products fail" }],
  },

  {
    alert: "StarlingSubgraphUnavailable", before: 1, at: 5,
    series: {
      // Open, then half-open.
      'starling_subgraph_breaker_state{subgraph="products",instance="r1"}': samples(0, 0, 2, 1, 2, 1),
      'starling_subgraph_breaker_state{subgraph="reviews",instance="r1"}': samples(0, 2, 0, 2, 0, 2, 0),
    },
    fires: [{ labels: { subgraph: "products" }, summary: "No requests are sent to products" }],
  },

  {
    alert: "StarlingSubgraphErrors", before: 9, at: 12,
    series: {
      ...counters("starling_subgraph_requests_total", "subgraph", { products: 100, users: 100 }),
      ...counters("starling_subgraph_errors_total", "subgraph", { products: 30, users: 10 }, { code: "none" }),
    },
    fires: [{
      labels: { subgraph: "products" },
      summary: "products reports errors in many of its responses",
    }],
  },

  {
    alert: "StarlingSubgraphSlow", before: 9, at: 12,
    series: {
      ...durations("starling_subgraph_request_duration_seconds_bucket", 'subgraph="products"', 10),
      ...durations("starling_subgraph_request_duration_seconds_bucket", 'subgraph="users"', 0),
    },
    fires: [{
      labels: { subgraph: "products" },
      summary: "One of a hundred requests to products takes 4.75s or longer",
    }],
  },

  atFirstRouter({
    alert: "StarlingSubgraphQueue", before: 1, at: 3,
    metric: "starling_subgraph_requests_waiting", labels: { subgraph: "products" },
    firing: gauge(60), quiet: gauge(50),
    summary: "60 requests wait for a connection to products",
  }),

  atFirstRouter({
    alert: "StarlingProviderAway", before: 2, at: 4,
    metric: "starling_events_provider_connected", labels: { provider: "nats/default" },
    firing: samples(1, 1, 0), quiet: samples(1, 0, 1, 0, 1),
    summary: "r1 has no connection to nats/default",
  }),

  atFirstRouter({
    alert: "StarlingProviderUnstable", before: 4, at: 8,
    metric: "starling_events_reconnects_total", labels: { provider: "nats/default" },
    firing: counter(1), quiet: samples(0, 4),
    summary: "The connection to nats/default is lost again and again",
  }),

  {
    alert: "StarlingEventsLate", before: 4, at: 6,
    series: {
      'starling_events_topic_lag_seconds{provider="kafka/default",topic="orders",instance="r1"}': gauge(45),
      'starling_events_topic_lag_seconds{provider="kafka/default",topic="prices",instance="r1"}': gauge(29),
      'starling_events_topic_lag_seconds{provider="kafka/default",topic="stock",instance="r1"}': samples(45, 45, 45, 0),
    },
    fires: [{
      labels: { provider: "kafka/default", topic: "orders" },
      summary: "Events of orders come 45s late",
    }],
  },

  ...anyGrowing(
    "StarlingEventsDropped",
    [
      "starling_events_dropped_total", "starling_events_gaps_total", "starling_hub_dropped_total",
      "starling_hub_groups_outrun_total",
    ],
    (instance) => `${instance} has lost events`,
  ),

  {
    alert: "StarlingSlowReaders", before: 4, at: 7,
    series: {
      'starling_subscribers_slow_total{policy="disconnect",instance="r1"}': counter(600),
      'starling_subscribers_slow_total{policy="latest",instance="r1"}': counter(30),
      'starling_subscribers_slow_total{policy="disconnect",instance="r2"}': counter(0),
    },
    fires: [{ labels: { instance: "r1", policy: "disconnect" }, summary: "Clients of r1 read too slowly" }],
  },

  {
    alert: "StarlingSubscriptionsRefused", before: 4, at: 7,
    series: {
      'starling_hub_refused_total{reason="provider",instance="r1"}': counter(60),
      'starling_hub_refused_total{reason="overload",instance="r1"}': counter(3),
    },
    fires: [{ labels: { reason: "provider", instance: "r1" }, summary: "Subscriptions are refused (provider)" }],
  },

  {
    alert: "StarlingGraphRefused", before: 0, at: 2,
    series: {
      'starling_graph_loads_total{result="refused",instance="r1"}': samples(0, 1),
      'starling_composition_errors{instance="r2"}': samples(0, 3),
      'starling_graph_loads_total{result="loaded",instance="r3"}': counter(1),
      'starling_composition_errors{instance="r3"}': gauge(0),
    },
    fires: ["r1", "r2"].map((instance) =>
      ({ labels: { instance }, summary: `${instance} does not take the new graph` })),
  },

  {
    alert: "StarlingSupergraphNotRead", before: 19, at: 22,
    series: {
      // Last read at the time 0: 900 s are over at the minute 16.
      'starling_supergraph_download_success_time_seconds{instance="r1"}': gauge(0),
      // Read each minute.
      'starling_supergraph_download_success_time_seconds{instance="r2"}': counter(60),
      'starling_supergraph_downloads_total{result="loaded",instance="r2"}': counter(1),
    },
    fires: [{ labels: { instance: "r1" }, summary: "r1 does not get its supergraph" }],
  },
  {
    alert: "StarlingSupergraphNotRead", before: 4, at: 7,
    series: {
      'starling_supergraph_download_success_time_seconds{instance="r1"}': counter(60),
      'starling_supergraph_downloads_total{result="refused",instance="r1"}': counter(1),
    },
    fires: [{ labels: { instance: "r1" }, summary: "r1 does not get its supergraph" }],
  },

  atFirstRouter({
    alert: "StarlingSupergraphFromCopy", before: 9, at: 11,
    metric: "starling_supergraph_download_serves_copy",
    firing: gauge(1), quiet: samples(1, 1, 1, 0),
    summary: "r1 serves the supergraph of its copy on disk",
  }),

  {
    alert: "StarlingKeysNotRead", before: 2, at: 6,
    series: {
      'starling_authentication_key_sets_total{issuer="staff",result="failed",instance="r1"}': counter(1),
      'starling_authentication_key_sets_total{issuer="staff",result="read",instance="r2"}': counter(1),
      'starling_authentication_key_sets_total{issuer="staff",result="failed",instance="r2"}': samples(0, 2),
    },
    fires: [{
      labels: { issuer: "staff", instance: "r1" },
      summary: "r1 cannot read the key set of staff",
    }],
  },

  atFirstRouter({
    alert: "StarlingRestarts", before: 2, at: 4,
    metric: "process_start_time_seconds", labels: { job: "starling" },
    firing: samples(1, 60, 120, 180), quiet: samples(1, 60, 120),
    summary: "r1 restarts again and again",
  }),

  atFirstRouter({
    alert: "StarlingMemory", before: 9, at: 11,
    metric: "process_resident_memory_bytes", labels: { job: "starling" },
    firing: gauge(900 * 1024 * 1024), quiet: gauge(700 * 1024 * 1024),
    summary: "r1 uses 900MiB of memory",
  }),

  {
    alert: "StarlingDescriptors", before: 4, at: 6,
    series: {
      'process_open_fds{job="starling",instance="r1"}': gauge(900),
      'process_max_fds{job="starling",instance="r1"}': gauge(1000),
      'process_open_fds{job="starling",instance="r2"}': gauge(800),
      'process_max_fds{job="starling",instance="r2"}': gauge(1000),
    },
    fires: [{ labels: { job: "starling", instance: "r1" }, summary: "r1 has used 90% of its file descriptors" }],
  },

  atFirstRouter({
    alert: "StarlingStoreUnavailable", before: 1, at: 3,
    metric: "starling_store_breaker_open", labels: { store: "shared" },
    firing: gauge(1), quiet: samples(1, 1, 0),
    summary: "r1 does without the store shared",
  }),

  atFirstRouter({
    alert: "StarlingCacheAlone", before: 1, at: 3,
    metric: "starling_cache_log_current",
    firing: gauge(0), quiet: samples(0, 0, 1),
    summary: "r1 does not hear what other routers make stale",
  }),

  {
    alert: "StarlingCacheTooSmall", before: 29, at: 33,
    series: {
      ...counters("starling_cache_stores_total", "level", { entities: 100, responses: 100 }, { instance: "r1" }),
      ...counters("starling_cache_evictions_total", "level", { entities: 60, responses: 40 }, { instance: "r1" }),
    },
    fires: [{ labels: { level: "entities" }, summary: "The cache of the level entities is too small" }],
  },

  ...anyGrowing(
    "StarlingLogsLost",
    [
      "starling_log_lines_dropped_total", "starling_access_log_lines_dropped_total", "starling_traces_dropped_total",
      "starling_trace_spans_lost_total",
    ],
    (instance) => `${instance} loses lines of a log or traces`,
  ),

  {
    alert: "StarlingNamesMadeUp", before: 9, at: 12,
    series: {
      'starling_metrics_names_replaced_total{table="operations",instance="r1"}': counter(100),
      'starling_metrics_names_replaced_total{table="clients",instance="r1"}': counter(10),
    },
    fires: [{
      labels: { table: "operations", instance: "r1" },
      summary: "Names in the metrics (operations) change all the time",
    }],
  },
];
