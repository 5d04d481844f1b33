//! The command line of xtask.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Default duration of a soak or of one fuzz target.
const SECONDS_DEFAULT: u32 = 60;

/// Default duration of the long soaks. Memory must be constant after the first minute for a while, the soak `resume`
/// needs about half a minute for each of its scenarios, and the percentiles of the soak `hostile` need more requests.
const LONG_SOAK_SECONDS_DEFAULT: u32 = 600;

/// The default number of subscribers of the soak `reloads`.
const SUBSCRIBERS_DEFAULT: u32 = 5_000;

/// Developer commands of Starling
#[derive(Debug, PartialEq, Eq, Parser)]
#[command(bin_name = "cargo xtask", arg_required_else_help = true)]
pub(crate) enum Command {
    /// Run every test: cargo's, then the end-to-end suites in JavaScript
    Test(TestArguments),
    /// Measure a release build
    #[command(disable_help_flag = true)]
    Bench(BenchArguments),
    /// Run one long test against a release build
    #[command(subcommand)]
    Soak(Soak),
    /// Run one fuzz target or all
    Fuzz(FuzzArguments),
    /// Run the tests of crates with `unsafe` under Miri and AddressSanitizer
    Sanitize,
    /// Check the pages that are generated from code, or write them; build the documentation site
    Docs(DocsArguments),
    /// Check HTTP/2 conformance: 145 cases against the router
    H2spec,
    /// Check the licences of all dependencies against deny.toml
    Licences,
    /// Make the archives of a release: program, debug symbols, licences, completions, man pages, SBOM, sums
    Dist(DistArguments),
}

#[derive(Debug, PartialEq, Eq, Args)]
pub(crate) struct TestArguments {
    /// Run only the tests with NAME in their names; an error if there are none
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) filter: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Args)]
pub(crate) struct BenchArguments {
    /// Name of the benchmark and its options; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

/// One long test.
#[derive(Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Soak {
    /// Subscribers of the demo that come and go
    Live(SoakArguments),
    /// Queries at a constant rate with flat memory, then reloads
    Queries(LongSoakArguments),
    /// Clients that connect, subscribe, unsubscribe and disconnect
    Churn(LongSoakArguments),
    /// Clients that resume with their cursors during faults of router, broker and subgraphs
    Resume {
        #[command(flatten)]
        duration: LongSoakArguments,
        /// Keep all cores busy meanwhile
        #[arg(long)]
        busy: bool,
    },
    /// Attacks beside a normal client
    Hostile(LongSoakArguments),
    /// A hundred reloads of the graph while subscribers receive events
    Reloads {
        #[command(flatten)]
        duration: SoakArguments,
        /// Number of subscribers
        #[arg(long, value_name = "N", default_value_t = SUBSCRIBERS_DEFAULT,
              value_parser = clap::value_parser!(u32).range(1..))]
        subscribers: u32,
    },
}

#[derive(Debug, PartialEq, Eq, Args)]
pub(crate) struct SoakArguments {
    /// Duration
    #[arg(long, value_name = "N", default_value_t = SECONDS_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: u32,
}

#[derive(Debug, PartialEq, Eq, Args)]
pub(crate) struct LongSoakArguments {
    /// Duration
    #[arg(long, value_name = "N", default_value_t = LONG_SOAK_SECONDS_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: u32,
}

#[derive(Debug, PartialEq, Eq, Args)]
pub(crate) struct FuzzArguments {
    /// The only target to run
    pub(crate) target: Option<String>,
    /// Duration of each target
    #[arg(long, value_name = "N", default_value_t = SECONDS_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: u32,
}

#[derive(Debug, PartialEq, Eq, Args)]
pub(crate) struct DocsArguments {
    /// Write the pages instead of checking them
    #[arg(long)]
    pub(crate) write: bool,
    /// Build the documentation site instead
    #[arg(long, conflicts_with = "write")]
    pub(crate) site: bool,
    /// Folder of the site, which keeps other versions. Default: `site` in the target folder
    #[arg(long, value_name = "FOLDER", requires = "site")]
    pub(crate) output: Option<PathBuf>,
    /// Path of the site on its server, such as `/starling/`. Default: `/`
    #[arg(long, value_name = "PATH", requires = "site")]
    pub(crate) base: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Args)]
pub(crate) struct DistArguments {
    /// Target to build for; may be given several times. Default: Linux on x86-64 and 64-bit ARM, where they can be built
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target: Vec<String>,
    /// Profile: `dev` is for trying the command out
    #[arg(long, value_name = "PROFILE", default_value = "dist", value_parser = ["dist", "dev"])]
    pub(crate) profile: String,
    /// Oldest version of glibc to run with, such as 2.28; needs cargo-zigbuild. Default: that of this machine
    #[arg(long, value_name = "VERSION")]
    pub(crate) glibc: Option<String>,
    /// Pack this program for this machine instead of building one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "profile", "glibc"])]
    pub(crate) binary: Option<PathBuf>,
    /// Folder of the archives, without those of an earlier run, which are deleted. Default: `packages` in the target folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Command::try_parse_from(std::iter::once("xtask").chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_is_consistent() {
        Command::command().debug_assert();
    }

    #[test]
    fn commands_are_read_with_their_options() {
        let test = |filter: Option<&str>| {
            Command::Test(TestArguments { filter: filter.map(str::to_owned) })
        };
        let fuzz = |target: Option<&str>, seconds| {
            Command::Fuzz(FuzzArguments { target: target.map(str::to_owned), seconds })
        };
        let bench = |words: &[&str]| {
            Command::Bench(BenchArguments { words: words.iter().map(OsString::from).collect() })
        };
        let long = |seconds| LongSoakArguments { seconds };
        let resume = |seconds, busy| Command::Soak(Soak::Resume { duration: long(seconds), busy });
        let dist = |target: &[&str], profile: &str, glibc: Option<&str>| DistArguments {
            target: target.iter().map(ToString::to_string).collect(),
            profile: profile.to_owned(),
            glibc: glibc.map(str::to_owned),
            binary: None,
            output: None,
        };
        let docs = |write, site, output: Option<&str>, base: Option<&str>| {
            let output = output.map(PathBuf::from);
            Command::Docs(DocsArguments { write, site, output, base: base.map(str::to_owned) })
        };
        let reloads = |seconds, subscribers| {
            let duration = SoakArguments { seconds };
            Command::Soak(Soak::Reloads { duration, subscribers })
        };
        for (line, expected) in [
            ("test", test(None)),
            ("test --filter ping", test(Some("ping"))),
            ("test --filter=a=b", test(Some("a=b"))),
            ("soak live", Command::Soak(Soak::Live(SoakArguments { seconds: 60 }))),
            ("soak live --seconds 5", Command::Soak(Soak::Live(SoakArguments { seconds: 5 }))),
            ("soak queries", Command::Soak(Soak::Queries(long(600)))),
            ("soak churn", Command::Soak(Soak::Churn(long(600)))),
            ("soak hostile", Command::Soak(Soak::Hostile(long(600)))),
            ("soak resume", resume(600, false)),
            ("soak resume --busy --seconds 90", resume(90, true)),
            ("soak reloads", reloads(60, 5_000)),
            ("soak reloads --subscribers=9 --seconds 90", reloads(90, 9)),
            ("bench", bench(&[])),
            ("bench --help", bench(&["--help"])),
            (
                "bench router --pairs 3 --seconds=2",
                bench(&["router", "--pairs", "3", "--seconds=2"]),
            ),
            ("fuzz", fuzz(None, 60)),
            ("fuzz sse --seconds=9", fuzz(Some("sse"), 9)),
            ("docs", docs(false, false, None, None)),
            ("docs --write", docs(true, false, None, None)),
            ("docs --site", docs(false, true, None, None)),
            ("docs --site --output a --base /b/", docs(false, true, Some("a"), Some("/b/"))),
            ("h2spec", Command::H2spec),
            ("sanitize", Command::Sanitize),
            ("licences", Command::Licences),
            ("dist", Command::Dist(dist(&[], "dist", None))),
            (
                "dist --target a --target b --profile dev --glibc 2.28",
                Command::Dist(dist(&["a", "b"], "dev", Some("2.28"))),
            ),
        ] {
            assert_eq!(parse(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn wrong_arguments_are_refused_with_exit_code_2() {
        for (line, expected) in [
            ("", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("tset", ErrorKind::InvalidSubcommand),
            ("test ping", ErrorKind::UnknownArgument),
            ("test --filter", ErrorKind::InvalidValue),
            ("test --filter=", ErrorKind::InvalidValue),
            ("test --seconds 3", ErrorKind::UnknownArgument),
            ("soak", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("soak live --busy", ErrorKind::UnknownArgument),
            ("soak live --subscribers 3", ErrorKind::UnknownArgument),
            ("soak reloads --subscribers 0", ErrorKind::ValueValidation),
            ("soak live now", ErrorKind::UnknownArgument),
            ("fuzz --seconds 0", ErrorKind::ValueValidation),
            ("docs --wriet", ErrorKind::UnknownArgument),
            ("docs --site --write", ErrorKind::ArgumentConflict),
            ("docs --base /b/", ErrorKind::MissingRequiredArgument),
            ("licences now", ErrorKind::UnknownArgument),
            ("dist --profile release", ErrorKind::InvalidValue),
            ("dist --binary a --target b", ErrorKind::ArgumentConflict),
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!((error.kind(), error.exit_code()), (expected, 2), "{line}");
        }
    }
}
