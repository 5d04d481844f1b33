//! The command line, which is that of `cargo xtask bench` and of the soaks `churn` and `reloads`.

use crate::provider::Provider;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// The part of `cargo xtask` that measures
#[derive(Debug, PartialEq, Eq, Parser)]
#[command(bin_name = "cargo xtask", arg_required_else_help = true)]
pub(crate) enum Command {
    /// Measure a release build
    Bench(BenchArguments),
    /// Run one long test against a release build
    #[command(subcommand)]
    Soak(Soak),
}

#[derive(Debug, PartialEq, Eq, Args)]
pub(crate) struct BenchArguments {
    /// Benchmark to run
    #[arg(value_enum)]
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// A benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// The cost of a response above the floor, alone and under load
    Router,
    /// Latency at 70 % of the maximum rate
    Rate,
    /// Cost and memory by the size of the response
    Sizes,
    /// The cost of open subscriptions and of sending events
    Subscriptions,
    /// The rate of events through one trigger
    Events,
    /// One rate limit of three routers in one Redis, and latency without Redis
    SharedLimits,
    /// Responses from memory beside the floor and beside a router that stores nothing
    Cache,
    /// More load than the router can do: goodput, latency, refusals, fairness, and bounds on them
    Overload,
}

/// The options of a benchmark; `None` selects the default of the measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct Options {
    /// Measured seconds of one run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: Option<u32>,
    /// Number of repetitions of each measurement
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pairs: Option<u32>,
    /// Number of clients
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: Option<u32>,
    /// Run only the measurements with NAME in their names
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) filter: Option<String>,
    /// The only provider to measure
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) provider: Option<Provider>,
    /// The router to measure: a folder in `benches/routers`
    #[arg(long, value_name = "NAME")]
    pub(crate) router: Option<String>,
}

/// A long test that uses the load generator. xtask has the defaults of its options.
#[derive(Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Soak {
    /// Clients that connect, subscribe, unsubscribe and disconnect
    Churn {
        /// Duration
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
    },
    /// A hundred reloads of the graph while subscribers receive events
    Reloads {
        /// Duration
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
        /// Number of subscribers
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        subscribers: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Command::try_parse_from(std::iter::once("benches").chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_is_consistent() {
        Command::command().debug_assert();
    }

    #[test]
    fn commands_are_read_with_their_options() {
        for (line, expected) in [
            (
                "bench router --pairs 3 --seconds=2 --filter share --router other",
                Command::Bench(BenchArguments {
                    name: Name::Router,
                    options: Options {
                        seconds: Some(2),
                        pairs: Some(3),
                        filter: Some("share".to_owned()),
                        router: Some("other".to_owned()),
                        ..Options::default()
                    },
                }),
            ),
            (
                "bench events --provider nats --clients=10",
                Command::Bench(BenchArguments {
                    name: Name::Events,
                    options: Options {
                        clients: Some(10),
                        provider: Some(Provider::Nats),
                        ..Options::default()
                    },
                }),
            ),
            (
                "bench subscriptions --filter upstream --pairs 1",
                Command::Bench(BenchArguments {
                    name: Name::Subscriptions,
                    options: Options {
                        pairs: Some(1),
                        filter: Some("upstream".to_owned()),
                        ..Options::default()
                    },
                }),
            ),
            (
                "bench overload --filter multiples --seconds 120",
                Command::Bench(BenchArguments {
                    name: Name::Overload,
                    options: Options {
                        seconds: Some(120),
                        filter: Some("multiples".to_owned()),
                        ..Options::default()
                    },
                }),
            ),
            ("soak churn --seconds 600", Command::Soak(Soak::Churn { seconds: 600 })),
            (
                "soak reloads --seconds 90 --subscribers 9",
                Command::Soak(Soak::Reloads { seconds: 90, subscribers: 9 }),
            ),
        ] {
            assert_eq!(parse(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn wrong_arguments_are_refused_with_exit_code_2() {
        for (line, expected) in [
            ("bench", ErrorKind::MissingRequiredArgument),
            ("bench route", ErrorKind::InvalidValue),
            ("bench events --clients x", ErrorKind::ValueValidation),
            ("bench events --provider rabbit", ErrorKind::InvalidValue),
            ("soak reloads --seconds 1", ErrorKind::MissingRequiredArgument),
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!((error.kind(), error.exit_code()), (expected, 2), "{line}");
        }
    }
}
