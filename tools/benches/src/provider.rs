//! The kinds of brokers that events come from.

use clap::ValueEnum;

/// The kind of broker that events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Provider {
    Memory,
    Nats,
    Redis,
    Kafka,
}

impl Provider {
    /// Returns the name on the command line, which is also the key of this kind in the router's configuration.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Nats => "nats",
            Self::Redis => "redis",
            Self::Kafka => "kafka",
        }
    }

    /// Returns the name for reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Nats => "NATS",
            Self::Redis => "Redis",
            Self::Kafka => "Kafka",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_have_the_same_name_on_the_command_line_and_in_the_configuration() {
        for provider in Provider::value_variants() {
            assert_eq!(Provider::from_str(provider.key(), false), Ok(*provider));
        }
    }
}
