//! The kinds of memory that are counted.

/// The holders of counted memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryKind {
    /// Operations in flight, and handshakes. Each counts as one of usual size.
    Operations,
    /// Bodies of requests.
    RequestBodies,
    /// Forms with files.
    Uploads,
    /// Bodies of requests to subgraphs.
    SubgraphRequests,
    /// Responses of subgraphs, as they arrive.
    SubgraphResponses,
    /// The trees that responses are made of, and the responses that are printed from them.
    ResponseTrees,
    /// Responses that clients have not read.
    Responses,
}

impl MemoryKind {
    /// All kinds, in the order of `MemoryKind::index`.
    pub const ALL: [Self; 7] = [
        Self::Operations,
        Self::RequestBodies,
        Self::Uploads,
        Self::SubgraphRequests,
        Self::SubgraphResponses,
        Self::ResponseTrees,
        Self::Responses,
    ];

    /// Returns the place of the kind in tables.
    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of the kind, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::RequestBodies => "request_bodies",
            Self::Uploads => "uploads",
            Self::SubgraphRequests => "subgraph_requests",
            Self::SubgraphResponses => "subgraph_responses",
            Self::ResponseTrees => "response_trees",
            Self::Responses => "responses",
        }
    }
}
