//! Mock subgraphs and load: what serves or drives a router under test.
