// The navigation of the site: which page of the repository is in which section, under which name. Data only.
//
// Sections follow the reader's task, not the folders. A page of docs/ that is not listed here is still built, and is at
// the end of the guides (`stage.mjs`).

/** `{title, pages, groups}`: pages are `[path in the repository, name]`, groups are sections inside a section. */
export const SECTIONS = [
  {
    title: "Start",
    pages: [
      ["README.md", "Overview"],
      ["docs/installation.md", "Install"],
      ["docs/quick-start.md", "Your own graph in ten minutes"],
    ],
  },
  {
    title: "Guides",
    groups: [
      {
        title: "The graph",
        pages: [
          ["docs/composition.md", "Composition"],
          ["docs/subgraphs.md", "Subgraphs"],
          ["docs/subgraph-subscriptions.md", "Subscriptions of subgraphs"],
          ["docs/uploads.md", "File uploads"],
        ],
      },
      {
        title: "Subscriptions and events",
        pages: [
          ["docs/subscriptions.md", "Subscriptions by client"],
          ["docs/clients.md", "Clients that lose nothing"],
          ["docs/live-queries.md", "Live queries"],
          ["docs/events.md", "Events"],
          ["docs/events/initial-state.md", "Initial state"],
          ["docs/events/cursors.md", "Cursors"],
          ["docs/events/nats.md", "Events over NATS"],
          ["docs/events/kafka.md", "Events over Kafka"],
          ["docs/events/redis.md", "Events over Redis"],
          ["docs/events/memory.md", "Events in memory"],
        ],
      },
      {
        title: "Access",
        pages: [
          ["docs/authentication.md", "Authentication"],
          ["docs/field-authorization.md", "Field authorization"],
          ["docs/persisted-documents.md", "Persisted documents"],
          ["docs/rate-limits.md", "Rate limits and blocks"],
          ["docs/cost.md", "Cost"],
          ["docs/browsers.md", "Browsers"],
          ["docs/hardening.md", "Hardening"],
        ],
      },
      {
        title: "Performance",
        pages: [
          ["docs/performance.md", "Performance tuning"],
          ["docs/caching.md", "Caching"],
          ["docs/shared-state.md", "State that routers share"],
          ["docs/overload.md", "Overload"],
          ["docs/scaling.md", "Scaling"],
          ["docs/load-testing.md", "Load testing"],
          ["docs/profiling.md", "Profiling"],
        ],
      },
      {
        title: "Operation",
        pages: [
          ["docs/production.md", "Production"],
          ["docs/kubernetes.md", "Kubernetes"],
          ["docs/several-graphs.md", "Several graphs"],
          ["docs/monitoring.md", "Monitoring"],
          ["docs/console.md", "The console"],
          ["docs/tracing.md", "Traces"],
          ["docs/access-log.md", "Access log"],
        ],
      },
      {
        title: "Migration",
        pages: [
          ["docs/migration.md", "From Apollo Router, Cosmo Router or Hive Router"],
          ["docs/migration-edfs.md", "From another EDFS router"],
        ],
      },
    ],
  },
  {
    title: "Reference",
    pages: [
      ["docs/configuration.md", "Configuration"],
      ["docs/events/directives.md", "Event directives"],
      ["examples/composition/event-directives.graphql", "Definitions to paste"],
      ["docs/cli.md", "Command line"],
      ["docs/errors.md", "Errors"],
      ["docs/metrics.md", "Metrics"],
      ["docs/http.md", "HTTP"],
      ["docs/expressions.md", "Expressions"],
      ["docs/composition/codes.md", "Codes of composition"],
      ["docs/composition/schema-changes.md", "Schema changes"],
      ["docs/glossary.md", "Glossary"],
    ],
  },
  {
    title: "Concepts",
    pages: [
      ["docs/query-flow.md", "How a query flows"],
      ["docs/event-flow.md", "How an event flows"],
      ["docs/query-planning.md", "Query planning"],
    ],
  },
  {
    title: "Project",
    pages: [
      ["ARCHITECTURE.md", "Architecture"],
      ["benches/README.md", "Measurements"],
      ["docs/composition-differences.md", "Composition compared"],
      ["docs/roadmap.md", "Roadmap"],
      ["SECURITY.md", "Security policy"],
      ["docs/versions.md", "Support and versions"],
      ["CHANGELOG.md", "Changelog"],
      ["CONTRIBUTING.md", "Contributing"],
    ],
  },
];

/** The group that takes the pages of docs/ that no section lists. */
export const REST = { section: "Guides", title: "More" };

/** Pages that another page lists in place of the navigation. */
export const LISTED_ELSEWHERE = /^docs\/composition\/codes\//;

/** Documents outside docs/ whose address on the site is not `repository/PATH`. */
export const ADDRESSES = {
  "README.md": "overview.md",
  "ARCHITECTURE.md": "architecture.md",
  "CHANGELOG.md": "changelog.md",
  "CONTRIBUTING.md": "contributing.md",
  "SECURITY.md": "security.md",
  "benches/README.md": "measurements.md",
};
