//! The routers with configurations that can be migrated.

/// A router with a configuration that can be migrated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Router {
    /// Apollo Router, also GraphOS Router: `router.yaml`.
    Apollo,
    /// WunderGraph Cosmo Router: `config.yaml`.
    Cosmo,
    /// Hive Router: `router.config.yaml`.
    Hive,
}

impl Router {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Apollo, Self::Cosmo, Self::Hive];

    /// Returns the name of the product.
    pub fn name(self) -> &'static str {
        match self {
            Self::Apollo => "Apollo Router",
            Self::Cosmo => "Cosmo Router",
            Self::Hive => "Hive Router",
        }
    }

    /// Returns the address on which it listens by default.
    pub(crate) fn address(self) -> &'static str {
        match self {
            Self::Apollo => "127.0.0.1:4000",
            Self::Cosmo => "127.0.0.1:3002",
            Self::Hive => "0.0.0.0:4000",
        }
    }
}
