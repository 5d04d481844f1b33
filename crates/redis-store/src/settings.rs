//! The settings of a store.

use std::time::Duration;

use net::TlsClient;
use redis_connection::{RedisAddress, RedisAuthentication, RedisSettingsError};

/// The settings of one store.
#[derive(Clone)]
pub struct StoreSettings {
    /// The name of the store in logs and metrics.
    pub id: Box<str>,
    /// `redis://host:port/database`, `rediss://host:port` (TLS) or `unix:///path`. Several URLs name servers of which
    /// the first that responds is used, nodes of one cluster, or sentinels. Credentials in them are removed and never
    /// shown.
    pub urls: Vec<String>,
    /// The credentials. They override those in `urls`.
    pub authentication: Option<RedisAuthentication>,
    /// True if the servers are a cluster.
    pub is_cluster: bool,
    /// The sentinel settings if `urls` are sentinels.
    pub sentinel: Option<StoreSentinel>,
    /// The TLS client for `rediss`. `None` trusts the authorities of the system.
    pub tls: Option<TlsClient>,
    /// The beginning of every key. It ends where the names of the users of the store begin, for example with `:`.
    pub namespace: Box<str>,
    /// The time limit of one run of commands, from the call to the last reply.
    pub timeout: Duration,
    /// The maximum number of commands in flight. Further ones fail at once.
    pub in_flight_max: usize,
    /// The delay before the second attempt to connect. It doubles with each failure.
    pub retry_initial: Duration,
    /// The longest delay between two attempts to connect.
    pub retry_max: Duration,
}

impl StoreSettings {
    /// The default of [`StoreSettings::timeout`]: some round trips within a region, and little beside the time of an
    /// operation.
    pub const TIMEOUT: Duration = Duration::from_millis(10);

    /// The default of [`StoreSettings::in_flight_max`]: a server that executes 100,000 commands in a second has them
    /// done within the default time limit ten times over.
    pub const IN_FLIGHT_MAX: usize = 10_000;

    /// Returns the settings for servers at these URLs, with defaults for everything else.
    pub fn new(id: &str, urls: Vec<String>) -> Self {
        Self {
            id: id.into(),
            urls,
            authentication: None,
            is_cluster: false,
            sentinel: None,
            tls: None,
            namespace: "starling:".into(),
            timeout: Self::TIMEOUT,
            in_flight_max: Self::IN_FLIGHT_MAX,
            retry_initial: Duration::from_millis(100),
            retry_max: Duration::from_secs(5),
        }
    }

    /// Checks the URLs. Connects to nothing.
    ///
    /// # Errors
    /// The settings can never work.
    pub fn check(&self) -> Result<(), RedisSettingsError> {
        let authentication = self.authentication.as_ref();
        RedisAddress::parse_list(&self.urls, authentication, self.tls.as_ref()).map(drop)
    }
}

impl std::fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URLs are left out because they may contain credentials.
        f.debug_struct("StoreSettings")
            .field("id", &self.id)
            .field("namespace", &self.namespace)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Settings for sentinels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreSentinel {
    /// The name of the master that they watch.
    pub master: Box<str>,
    /// The credentials for the sentinels themselves.
    pub authentication: Option<RedisAuthentication>,
}
