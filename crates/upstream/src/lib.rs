//! The subgraph client: connection pools, limits, deadlines.
