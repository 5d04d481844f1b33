//! The stores of a router by their names.

use std::sync::Arc;

use redis_connection::RedisSettingsError;

use crate::settings::StoreSettings;
use crate::store::Store;

/// The stores of a router.
#[derive(Debug, Default)]
pub struct Stores(Vec<Arc<Store>>);

/// Settings of a store that can never work.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{id}`: {reason}")]
pub struct StoresError {
    /// The name of the store.
    pub id: Box<str>,
    /// The reason. It contains no credentials.
    pub reason: RedisSettingsError,
}

impl Stores {
    /// Starts stores. Must be called inside a Tokio runtime with time and I/O, which then runs their connections.
    ///
    /// # Errors
    /// The first settings that can never work.
    pub fn start(settings: Vec<StoreSettings>) -> Result<Self, StoresError> {
        let stores = settings.into_iter().map(|settings| {
            let id = settings.id.clone();
            Store::start(settings).map(Arc::new).map_err(|reason| StoresError { id, reason })
        });
        stores.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the store with this name.
    pub fn find(&self, id: &str) -> Option<&Arc<Store>> {
        self.0.iter().find(|it| it.id() == id)
    }

    /// Returns all stores.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.0.iter()
    }
}
