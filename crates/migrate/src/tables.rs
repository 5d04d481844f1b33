//! The data for each router: the tables of its keys, and the keys with another default.

use super::conversion::Conversion;
use super::router::Router;
use super::rule::Rule;
use super::{apollo, cosmo, hive};

/// Returns the tables of rules of a router.
pub(crate) fn rules(router: Router) -> &'static [&'static [Rule]] {
    match router {
        Router::Apollo => apollo::RULES,
        Router::Cosmo => cosmo::RULES,
        Router::Hive => hive::RULES,
    }
}

/// Sets the keys with another default that clients notice.
pub(crate) fn add_defaults(conversion: &mut Conversion<'_>) {
    match conversion.router {
        Router::Apollo => apollo::add_defaults(conversion),
        Router::Cosmo => cosmo::add_defaults(conversion),
        Router::Hive => hive::add_defaults(conversion),
    }
}
