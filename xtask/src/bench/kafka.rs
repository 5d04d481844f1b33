//! A Kafka broker for measurements: one node, from the jars that the tests have, in a folder of its own that is made anew.

use super::Bench;
use super::machine::{OTHER_CORE, Serving, free_address, pinned, write};
use crate::{Failure, kafka, process};
use std::path::Path;

/// What a broker of one node needs. What was read is given up soon, since nobody reads it twice: an hour of measuring would
/// otherwise fill the disk.
const SETTINGS: &str = "
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT
log.cleaner.dedupe.buffer.size=4194304
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
log.initial.task.delay.ms=100
log.segment.bytes=33554432
log.retention.bytes=134217728
log.retention.check.interval.ms=2000
file.delete.delay.ms=100
";

/// Enough for batches of events at full speed; the rest of the machine is the router's.
const HEAP: &str = "-Xmx512m";

/// A cluster has to have a name.
const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qg";

/// Starts a broker beside the load generator.
pub(super) fn start(bench: &Bench) -> Result<Serving, Failure> {
    let jars = kafka::prepare(&bench.tool)?;
    let folder = bench.reports.join("scratch/kafka");
    // There may be none yet.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (address, controller) = (free_address()?, free_address()?);
    let settings = folder.join("server.properties");
    let text = format!(
        "{SETTINGS}controller.quorum.voters=1@{controller}\n\
         listeners=PLAIN://{address},CONTROLLER://{controller}\n\
         advertised.listeners=PLAIN://{address}\nlog.dirs={}\n",
        folder.join("data").display()
    );
    write(&settings, &text)?;
    let mut format = pinned(OTHER_CORE, "java");
    format.args(java(&jars, "-Xmx96m")).args(["kafka.tools.StorageTool", "format"]);
    format.args(["--cluster-id", CLUSTER, "--config"]).arg(&settings);
    process::read(&mut format)?;
    let mut broker = pinned(OTHER_CORE, "java");
    broker.args(java(&jars, HEAP)).arg("kafka.Kafka").arg(&settings).current_dir(&folder);
    bench.started(broker, "kafka", address, String::new(), None)
}

/// Arguments of the virtual machine.
fn java(jars: &Path, heap: &str) -> [String; 4] {
    let jars = jars.join("*").display().to_string();
    [heap.to_owned(), "-XX:+UseSerialGC".to_owned(), "-cp".to_owned(), jars]
}
