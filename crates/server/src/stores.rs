//! The stores of the configuration: created at the start, and checked without connecting.

use config::diagnostic::Diagnostic;
use config::{Config, RedisAuthentication, RedisStore};
use redis_store::{StoreSentinel, StoreSettings, Stores};

/// Starts the configured stores, which connect in the background. Must be called inside the control runtime.
///
/// # Errors
/// Settings that no store can use.
pub(crate) fn start(config: &Config) -> Result<Stores, Vec<Diagnostic>> {
    let settings = all_settings(config)?;
    Stores::start(settings).map_err(|error| vec![refused(&error.id, &error.reason.to_string())])
}

/// Returns everything that prevents the stores from being started. Connects to nothing.
pub(crate) fn check(config: &Config) -> Vec<Diagnostic> {
    match all_settings(config) {
        Ok(settings) => {
            let checked = settings.iter().map(|it| (&it.id, it.check()));
            let problems = checked.filter_map(|(id, checked)| Some((id, checked.err()?)));
            problems.map(|(id, error)| refused(id, &error.to_string())).collect()
        }
        Err(problems) => problems,
    }
}

fn refused(id: &str, reason: &str) -> Diagnostic {
    Diagnostic::error("store", format!("storage_providers.redis `{id}`: {reason}"))
}

fn all_settings(config: &Config) -> Result<Vec<StoreSettings>, Vec<Diagnostic>> {
    let (mut all, mut problems) = (Vec::new(), Vec::new());
    for store in &config.storage_providers.redis {
        match settings_of(store) {
            Ok(settings) => all.push(settings),
            Err(reason) => problems.push(refused(&store.id, &reason)),
        }
    }
    if problems.is_empty() { Ok(all) } else { Err(problems) }
}

fn settings_of(store: &RedisStore) -> Result<StoreSettings, String> {
    let tls = store.tls.broker_settings().map(|tls| tls.client()).transpose();
    Ok(StoreSettings {
        authentication: store.authentication.as_ref().map(authentication),
        is_cluster: store.cluster_enabled,
        sentinel: store.sentinel.as_ref().map(|it| StoreSentinel {
            master: it.master.as_str().into(),
            authentication: it.authentication.as_ref().map(authentication),
        }),
        tls: tls.map_err(|error| format!("tls: {error}"))?,
        namespace: format!("{}:", store.namespace).into(),
        timeout: store.timeout,
        in_flight_max: store.max_in_flight as usize,
        retry_initial: store.retry.initial,
        retry_max: store.retry.max,
        ..StoreSettings::new(&store.id, store.urls.clone())
    })
}

fn authentication(given: &RedisAuthentication) -> redis_store::RedisAuthentication {
    redis_store::RedisAuthentication {
        user: given.username.clone(),
        password: given.password.expose().to_owned(),
    }
}
