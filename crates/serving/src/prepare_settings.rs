//! The settings of preparing operations, from the configuration.

use std::sync::Arc;

use crate::caching::ttl_rules;
use config::Config;
use graph::Supergraph;
use plan::{BatchLimits, Batching};
use prepare::{LabelShare, LabelShares, PrepareSettings};

/// Returns the settings of a preparer for `graph`.
pub(crate) fn prepare_settings(config: &Config, graph: &Supergraph) -> PrepareSettings {
    let defaults = PrepareSettings::default();
    // `limits.body` is left out, because it bounds requests, not operations.
    let config::Limits { tokens, depth, aliases, root_fields, selections, .. } = config.limits;
    let subgraphs = graph.subgraphs.iter();
    let batching = subgraphs.map(|it| batch_limits(&config.traffic.of(&it.name))).collect();
    PrepareSettings {
        limits: prepare::Limits { tokens, depth, aliases, root_fields, selections },
        introspection: config.introspection.enabled,
        filters_introspection: config.introspection.filter,
        live_queries: config.has_live_queries(),
        field_use: config.metrics.fields.max > 0,
        planning: plan::Limits { batching: Batching { subgraphs: batching }, ..defaults.planning },
        at_once: match config.limits.preparing {
            0 => defaults.at_once,
            preparing => preparing as usize,
        },
        waiting_max: config.limits.preparing_waiting as usize,
        waiting_per_client_max: config.limits.preparing_waiting_per_client as usize,
        operations_max: config.limits.prepared_operations,
        // `generation` sets it, with the counters of the generation before.
        cost: None,
        caching: ttl_rules(&config.cache, graph).map(Arc::new),
    }
}

/// Returns the limits for combining requests for entities.
fn batch_limits(settings: &config::TrafficSettings) -> BatchLimits {
    BatchLimits {
        aliases: if settings.batching { settings.max_aliases } else { 1 },
        representations: settings.max_representations,
    }
}

/// Returns the share of requests for which each configured label of progressive overrides is on.
pub(crate) fn label_shares(config: &Config) -> LabelShares {
    let labels = config.override_labels.iter();
    labels.map(|(label, it)| (label.clone(), LabelShare::percent(it.percent()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::TrafficSettings;

    #[test]
    fn without_batching_a_request_has_one_alias() {
        let settings = TrafficSettings {
            batching: false,
            max_aliases: 7,
            max_representations: 10,
            ..TrafficSettings::default()
        };
        assert_eq!(batch_limits(&settings), BatchLimits { aliases: 1, representations: 10 });
        let settings = TrafficSettings { batching: true, ..settings };
        assert_eq!(batch_limits(&settings).aliases, 7);
    }

    #[test]
    fn the_defaults_of_the_configuration_are_those_of_the_planner() {
        assert_eq!(batch_limits(&TrafficSettings::default()), BatchLimits::default());
    }

    #[test]
    fn a_label_that_is_a_switch_is_on_for_all_requests_or_none() {
        let mut config = Config::default();
        for (label, setting) in [("on", "true"), ("off", "false"), ("some", "2.5%")] {
            let setting = setting.to_owned().try_into().expect("a setting");
            config.override_labels.insert(label.to_owned(), setting);
        }
        let shares = label_shares(&config);
        assert_eq!(shares["on"], LabelShare::ALWAYS);
        assert_eq!(shares["off"], LabelShare::NEVER);
        assert_eq!(shares["some"], LabelShare::percent(2.5));
    }
}
