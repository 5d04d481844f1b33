//! The part of Kafka's protocol that is needed to publish to one topic: a missing topic is created, events go to its
//! first partition in batches, and each batch has a response. The versions of [the
//! protocol](https://kafka.apache.org/protocol) are those that brokers of 2.1 and later support, without tagged
//! fields.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::broker::BrokerConnection;
use crate::clock::now_us;

/// The kinds of requests, and their versions.
const PRODUCE: (i16, i16) = (0, 7);
const CREATE_TOPICS: (i16, i16) = (19, 2);

/// The client id.
const CLIENT: &str = "bench";

/// The deadline of the broker for a request.
const TIMEOUT_MS: i32 = 10_000;

/// `acks`: the leader has written the batch; replicas may follow.
const LEADER_ACKNOWLEDGES: i16 = 1;

/// `TOPIC_ALREADY_EXISTS`.
const TOPIC_EXISTS: i16 = 36;

/// `UNKNOWN_TOPIC_OR_PARTITION`, `LEADER_NOT_AVAILABLE`, `NOT_LEADER_OR_FOLLOWER`, `REQUEST_TIMED_OUT`,
/// `NOT_CONTROLLER`: the errors of a broker that has just started, or about a topic that was just created.
const RETRYABLE_ERRORS: [i16; 5] = [3, 5, 6, 7, 41];

/// The time for which such errors are retried, and the pause between attempts.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The maximum length of a response; longer ones cannot belong to these requests.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// A connection to the broker that has the topic's first partition.
pub(super) struct KafkaPublisher {
    stream: BufReader<TcpStream>,
    topic: String,
    /// The pending records, and their number.
    records: Vec<u8>,
    count: i32,
    record: Vec<u8>,
}

impl KafkaPublisher {
    pub(super) fn open(stream: BufReader<TcpStream>, topic: String) -> io::Result<Self> {
        let mut kafka = Self { stream, topic, records: Vec::new(), count: 0, record: Vec::new() };
        kafka.create_topic()?;
        Ok(kafka)
    }

    fn create_topic(&mut self) -> io::Result<()> {
        let mut body = Vec::new();
        put_count(&mut body, 1);
        put_text(&mut body, &self.topic);
        body.extend_from_slice(&1_i32.to_be_bytes());
        // One replica: there is one broker.
        body.extend_from_slice(&1_i16.to_be_bytes());
        // No assignment of replicas and no settings.
        put_count(&mut body, 0);
        put_count(&mut body, 0);
        body.extend_from_slice(&TIMEOUT_MS.to_be_bytes());
        // Not a validation only.
        body.push(0);
        // The throttle time, the number of topics, the name of the topic.
        self.retry_request(CREATE_TOPICS, &body, "create the topic", |response| {
            response.skip(8)?;
            response.text()?;
            response.number()
        })
    }

    /// Repeats a request until it succeeds or fails permanently; `code` finds the error code in a response.
    fn retry_request(
        &mut self,
        request: (i16, i16),
        body: &[u8],
        what: &str,
        code: impl Fn(&mut BrokerResponse<'_>) -> io::Result<i16>,
    ) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let response = self.send_request(request, body)?;
            match code(&mut BrokerResponse(&response))? {
                0 | TOPIC_EXISTS => return Ok(()),
                again if RETRYABLE_ERRORS.contains(&again) && began.elapsed() < RETRY_TIMEOUT => {
                    std::thread::sleep(RETRY_PAUSE);
                }
                // Error codes are listed in the protocol (https://kafka.apache.org/protocol#protocol_error_codes).
                code => {
                    return Err(io::Error::other(format!(
                        "Kafka did not {what}: error code {code}"
                    )));
                }
            }
        }
    }

    /// Sends a request and returns the response after its correlation id.
    fn send_request(&mut self, (kind, version): (i16, i16), body: &[u8]) -> io::Result<Vec<u8>> {
        let mut request = vec![0; 4];
        request.extend_from_slice(&kind.to_be_bytes());
        request.extend_from_slice(&version.to_be_bytes());
        // Responses come in the order of requests, and there is one request at a time.
        request.extend_from_slice(&0_i32.to_be_bytes());
        put_text(&mut request, CLIENT);
        request.extend_from_slice(body);
        let length = length(request.len() - 4);
        request[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.get_mut().write_all(&request)?;
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let length = usize::try_from(i32::from_be_bytes(head)).unwrap_or(usize::MAX);
        if !(4..=RESPONSE_BYTES_MAX).contains(&length) {
            return Err(io::Error::other("this is not Kafka's protocol"));
        }
        let mut response = vec![0; length];
        self.stream.read_exact(&mut response)?;
        response.drain(..4);
        Ok(response)
    }
}

impl BrokerConnection for KafkaPublisher {
    fn add(&mut self, key: &str, event: &[u8]) -> io::Result<()> {
        let record = &mut self.record;
        record.clear();
        // Attributes, and the time relative to the batch's.
        record.extend_from_slice(&[0, 0]);
        put_varint(record, self.count.into());
        for bytes in [key.as_bytes(), event] {
            put_varint(record, length(bytes.len()).into());
            record.extend_from_slice(bytes);
        }
        // No headers.
        put_varint(record, 0);
        put_varint(&mut self.records, length(record.len()).into());
        self.records.extend_from_slice(record);
        self.count += 1;
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let batch = batch(self.count, &self.records);
        self.records.clear();
        self.count = 0;
        let mut body = Vec::with_capacity(batch.len() + 64);
        // No transaction.
        body.extend_from_slice(&(-1_i16).to_be_bytes());
        body.extend_from_slice(&LEADER_ACKNOWLEDGES.to_be_bytes());
        body.extend_from_slice(&TIMEOUT_MS.to_be_bytes());
        put_count(&mut body, 1);
        put_text(&mut body, &self.topic);
        put_count(&mut body, 1);
        // The first partition.
        body.extend_from_slice(&0_i32.to_be_bytes());
        body.extend_from_slice(&length(batch.len()).to_be_bytes());
        body.extend_from_slice(&batch);
        // The number of topics, the name of the topic, the number of partitions, the number of the partition.
        self.retry_request(PRODUCE, &body, "accept events", |response| {
            response.skip(4)?;
            response.text()?;
            response.skip(8)?;
            response.number()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

/// The unread rest of a response.
struct BrokerResponse<'a>(&'a [u8]);

impl BrokerResponse<'_> {
    fn skip(&mut self, count: usize) -> io::Result<()> {
        self.0 = self.0.get(count..).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(())
    }

    fn number(&mut self) -> io::Result<i16> {
        let bytes = self.0.first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        let number = i16::from_be_bytes(*bytes);
        self.skip(2)?;
        Ok(number)
    }

    /// Skips a text.
    fn text(&mut self) -> io::Result<()> {
        let length = self.number()?;
        self.skip(usize::try_from(length).unwrap_or(0))
    }
}

/// Converts a length of events, which is far from the bound.
fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

fn put_count(into: &mut Vec<u8>, count: i32) {
    into.extend_from_slice(&count.to_be_bytes());
}

fn put_text(into: &mut Vec<u8>, text: &str) {
    // Names of topics have at most 249 bytes, and the client id is short.
    into.extend_from_slice(&i16::try_from(text.len()).unwrap_or(i16::MAX).to_be_bytes());
    into.extend_from_slice(text.as_bytes());
}

/// Appends a zigzag varint: seven bits a byte, the sign in the lowest bit.
fn put_varint(into: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        into.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    into.push(rest as u8);
}

/// Formats a batch of records: [the format](https://kafka.apache.org/documentation/#recordbatch).
fn batch(count: i32, records: &[u8]) -> Vec<u8> {
    let time_ms = i64::try_from(now_us() / 1000).unwrap_or(i64::MAX);
    let mut checked = Vec::with_capacity(records.len() + 64);
    // Attributes: no compression, create time.
    checked.extend_from_slice(&0_i16.to_be_bytes());
    checked.extend_from_slice(&(count - 1).to_be_bytes());
    checked.extend_from_slice(&time_ms.to_be_bytes());
    checked.extend_from_slice(&time_ms.to_be_bytes());
    // No producer id, epoch or sequence: the batch is not idempotent.
    checked.extend_from_slice(&[0xff; 8 + 2 + 4]);
    checked.extend_from_slice(&count.to_be_bytes());
    checked.extend_from_slice(records);
    let mut batch = Vec::with_capacity(checked.len() + 21);
    batch.extend_from_slice(&0_i64.to_be_bytes());
    // The length of the rest; then the leader's epoch, magic, checksum and the rest.
    batch.extend_from_slice(&length(checked.len() + 9).to_be_bytes());
    batch.extend_from_slice(&(-1_i32).to_be_bytes());
    batch.push(2);
    batch.extend_from_slice(&crc32c(&checked).to_be_bytes());
    batch.extend_from_slice(&checked);
    batch
}

/// The tables to process eight bytes at a time: the checksum of a byte followed by this number of zero bytes.
const CRC_TABLES: [[u32; 256]; 8] = crc_tables();

const fn crc_tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            // The polynomial of Castagnoli, reversed.
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// Computes CRC-32C (RFC 3720, appendix B.4), eight bytes at a time, so that an event of 64 kB is cheap.
fn crc32c(bytes: &[u8]) -> u32 {
    let at = |table: usize, byte: u32| CRC_TABLES[table][(byte & 0xff) as usize];
    let mut crc = u32::MAX;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for &[a, b, c, d, e, f, g, h] in chunks {
        let low = crc ^ u32::from_le_bytes([a, b, c, d]);
        let high = u32::from_le_bytes([e, f, g, h]);
        crc = at(7, low)
            ^ at(6, low >> 8)
            ^ at(5, low >> 16)
            ^ at(4, low >> 24)
            ^ at(3, high)
            ^ at(2, high >> 8)
            ^ at(1, high >> 16)
            ^ at(0, high >> 24);
    }
    for byte in rest {
        crc = (crc >> 8) ^ at(0, crc ^ u32::from(*byte));
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_rfc() {
        for (bytes, expected) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn varints_have_the_shortest_form() {
        for (number, expected) in [
            (0, &[0][..]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[126]),
            (64, &[0x80, 1]),
            (300, &[0xd8, 4]),
        ] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(bytes, expected, "{number}");
        }
    }

    #[test]
    fn a_batch_contains_its_length() {
        let batch = batch(2, b"records");
        let length = i32::from_be_bytes(*batch[8..].first_chunk().unwrap());
        // The length excludes the first offset and the length itself.
        assert_eq!(length as usize, batch.len() - 12);
        assert_eq!(batch.len(), 61 + b"records".len());
    }
}
