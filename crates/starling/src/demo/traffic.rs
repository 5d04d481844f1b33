//! The flights in motion: a pure state that moves by one flight a tick and says what to publish about it.
//!
//! No clock and no chance: the same number of ticks always leads to the same board. Who drives it decides how long a
//! tick takes ([`TICK`] is a good choice) and where the events go.

use std::time::Duration;

use serde_json::{Value, json};

use super::schedule::{FLIGHTS, ScheduledFlight};

/// A pace at which a reader can follow: four events a second, each flight every five.
pub const TICK: Duration = Duration::from_millis(250);

/// Every movement is published here, and also at this topic followed by `.` and the flight's id.
pub const MOVED_TOPIC: &str = "flights.moved";

/// The mutation `announceDelay` publishes here; see [`Traffic::hear`].
pub const DELAYS_TOPIC: &str = "flights.delays";

/// Longer delays are cancellations, which the demo does not have.
const DELAY_MINUTES_MAX: u16 = 600;

/// Minutes in the air that one movement stands for.
const MINUTES_PER_MOVE: u16 = 10;

/// Minutes of delay that one turn at the gate stands for.
const MINUTES_PER_WAIT: u16 = 15;

/// Turns at the gate, however long the delay: the board shall keep moving.
const WAITS_MAX: u16 = 8;

/// The whole way, in the unit of [`FlightInMotion::progress`].
const ARRIVED: u16 = 1000;

/// End of the climb and begin of the descent, in the same unit.
const CLIMBED: u16 = 150;
const DESCENDS: u16 = 800;

/// An event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The topic at [`super::PROVIDER`].
    pub topic: String,
    /// A JSON object.
    pub payload: String,
}

/// All flights and whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    flights: Vec<FlightInMotion>,
    turn: usize,
}

/// Where a flight is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlightInMotion {
    /// What does not change.
    pub scheduled: ScheduledFlight,
    /// Minutes announced for the next departure.
    pub delay_minutes: u16,
    phase: Phase,
    /// Thousandths of the way.
    progress: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Scheduled,
    Delayed { turns_left: u16 },
    Boarding,
    Airborne,
    Landed,
}

impl Default for Traffic {
    fn default() -> Self {
        Self::new()
    }
}

impl Traffic {
    /// A busy morning: most flights are in the air, some at their gates.
    pub fn new() -> Self {
        // Primes spread the flights over their ways; any would do.
        let spread = |index: usize| u16::try_from((index * 137 + 90) % 900).unwrap_or(0);
        let flights = FLIGHTS
            .iter()
            .enumerate()
            .map(|(index, scheduled)| {
                let (phase, progress) = match index % 10 {
                    5 => (Phase::Scheduled, 0),
                    7 => (Phase::Boarding, 0),
                    8 => (Phase::Landed, ARRIVED),
                    _ => (Phase::Airborne, spread(index)),
                };
                FlightInMotion { scheduled: *scheduled, delay_minutes: 0, phase, progress }
            })
            .collect();
        Self { flights, turn: 0 }
    }

    /// Moves the next flight by one step and returns the events that say so: the same payload at two topics.
    pub fn tick(&mut self) -> Vec<Event> {
        let turn = self.turn % self.flights.len().max(1);
        self.turn = turn + 1;
        let Some(flight) = self.flights.get_mut(turn) else { return Vec::new() };
        flight.advance();
        let payload = flight.event().to_string();
        let of_flight = format!("{MOVED_TOPIC}.{}", flight.scheduled.id);
        vec![
            Event { topic: MOVED_TOPIC.to_owned(), payload: payload.clone() },
            Event { topic: of_flight, payload },
        ]
    }

    /// A flight by its id.
    pub fn flight(&self, id: &str) -> Option<&FlightInMotion> {
        self.flights.iter().find(|flight| flight.scheduled.id == id)
    }

    /// Makes a flight wait before its next departure. False where there is no such flight.
    pub fn announce_delay(&mut self, id: &str, minutes: u16) -> bool {
        match self.flights.iter_mut().find(|flight| flight.scheduled.id == id) {
            Some(flight) => {
                flight.delay_minutes = minutes.min(DELAY_MINUTES_MAX);
                true
            }
            None => false,
        }
    }

    /// Obeys an event of [`DELAYS_TOPIC`]: a JSON object with `id` and `minutes`. False where it is none, or names an
    /// unknown flight.
    pub fn hear(&mut self, payload: &[u8]) -> bool {
        let Ok(event) = serde_json::from_slice::<Value>(payload) else { return false };
        match (event["id"].as_str(), event["minutes"].as_u64()) {
            (Some(id), Some(minutes)) => {
                self.announce_delay(id, u16::try_from(minutes).unwrap_or(DELAY_MINUTES_MAX))
            }
            _ => false,
        }
    }
}

impl FlightInMotion {
    /// A value of `FlightStatus`.
    pub fn status(&self) -> &'static str {
        match self.phase {
            Phase::Scheduled => "SCHEDULED",
            Phase::Delayed { .. } => "DELAYED",
            Phase::Boarding => "BOARDING",
            Phase::Airborne => "AIRBORNE",
            Phase::Landed => "LANDED",
        }
    }

    /// Metres above sea level: a climb, a level way and a descent.
    pub fn altitude(&self) -> u32 {
        let cruise = u32::from(self.scheduled.cruising_altitude);
        let progress = u32::from(self.progress);
        match self.progress {
            0..CLIMBED => cruise * progress / u32::from(CLIMBED),
            CLIMBED..DESCENDS => cruise,
            _ => cruise * u32::from(ARRIVED - self.progress) / u32::from(ARRIVED - DESCENDS),
        }
    }

    /// Part of the way flown, from 0 to 1.
    pub fn progress(&self) -> f64 {
        f64::from(self.progress) / f64::from(ARRIVED)
    }

    /// What the event subgraph declares of a flight, as an event carries it.
    fn event(&self) -> Value {
        json!({
            "__typename": "Flight",
            "id": self.scheduled.id,
            "status": self.status(),
            "altitude": self.altitude(),
            "progress": self.progress(),
            "delayMinutes": self.delay_minutes,
        })
    }

    fn advance(&mut self) {
        self.phase = match self.phase {
            Phase::Scheduled if self.delay_minutes > 0 => Phase::Delayed {
                turns_left: self.delay_minutes.div_ceil(MINUTES_PER_WAIT).min(WAITS_MAX) - 1,
            },
            Phase::Delayed { turns_left } if turns_left > 0 => {
                Phase::Delayed { turns_left: turns_left - 1 }
            }
            Phase::Scheduled | Phase::Delayed { .. } => Phase::Boarding,
            Phase::Boarding => {
                self.delay_minutes = 0;
                self.fly()
            }
            Phase::Airborne => self.fly(),
            Phase::Landed => {
                self.progress = 0;
                Phase::Scheduled
            }
        };
    }

    fn fly(&mut self) -> Phase {
        let moves = (self.scheduled.minutes / MINUTES_PER_MOVE).max(1);
        self.progress = (self.progress + ARRIVED.div_ceil(moves)).min(ARRIVED);
        if self.progress < ARRIVED { Phase::Airborne } else { Phase::Landed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_moves_one_flight_and_publishes_it_at_two_topics() {
        let mut traffic = Traffic::new();
        let events = traffic.tick();
        assert_eq!(events.len(), 2);
        assert_eq!(
            [&*events[0].topic, &*events[1].topic],
            ["flights.moved", "flights.moved.ST101"]
        );
        for event in events {
            let told: Value = serde_json::from_str(&event.payload).unwrap();
            let expected = json!({
                "__typename": "Flight",
                "id": "ST101",
                "status": "AIRBORNE",
                // 90 thousandths of the way at first, and 59 more: a seventeenth of 175 minutes, rounded up.
                "progress": 0.149,
                "altitude": 11_280 * 149 / 150,
                "delayMinutes": 0,
            });
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn the_same_number_of_ticks_leads_to_the_same_board() {
        let (mut one, mut other) = (Traffic::new(), Traffic::new());
        for _ in 0..1000 {
            assert_eq!(one.tick(), other.tick());
        }
        assert_eq!(one, other);
    }

    #[test]
    fn every_flight_goes_through_its_phases_and_departs_again() {
        let mut traffic = Traffic::new();
        let mut phases = std::collections::BTreeMap::<String, Vec<String>>::new();
        for _ in 0..20 * 60 {
            for event in traffic.tick().iter().filter(|event| event.topic == MOVED_TOPIC) {
                let told: Value = serde_json::from_str(&event.payload).unwrap();
                let progress = told["progress"].as_f64().unwrap();
                assert!((0.0..=1.0).contains(&progress));
                assert!(told["altitude"].as_u64().unwrap() < 12_000);
                let status = told["status"].as_str().unwrap().to_owned();
                let seen = phases.entry(told["id"].as_str().unwrap().to_owned()).or_default();
                if seen.last() != Some(&status) {
                    seen.push(status);
                }
            }
        }
        assert_eq!(phases.len(), FLIGHTS.len());
        for (id, seen) in phases {
            let order = ["SCHEDULED", "BOARDING", "AIRBORNE", "LANDED"];
            let at = |status: &str| order.iter().position(|name| *name == status).unwrap();
            assert!(seen.len() > 4, "{id} has moved through {seen:?} only");
            for pair in seen.windows(2) {
                assert_eq!((at(&pair[0]) + 1) % 4, at(&pair[1]), "{id}: {seen:?}");
            }
        }
    }

    #[test]
    fn a_flight_climbs_flies_level_and_lands() {
        let mut flight = Traffic::new().flight("ST101").unwrap().clone();
        let mut height = |progress| {
            flight.progress = progress;
            flight.altitude()
        };
        assert_eq!(
            [0, 75, 150, 500, 799, 900, 1000].map(&mut height),
            [0, 5640, 11280, 11280, 11280, 5640, 0]
        );
    }

    #[test]
    fn an_announced_delay_keeps_the_flight_at_its_gate_for_a_while() {
        let mut traffic = Traffic::new();
        // IM502 begins at its gate.
        assert!(traffic.hear(br#"{"id": "IM502", "minutes": 30}"#));
        let mut statuses = Vec::new();
        for _ in 0..FLIGHTS.len() * 4 {
            let events = traffic.tick();
            if events[1].topic.ends_with("IM502") {
                let told: Value = serde_json::from_str(&events[1].payload).unwrap();
                statuses.push((
                    told["status"].as_str().unwrap().to_owned(),
                    told["delayMinutes"].as_u64().unwrap(),
                ));
            }
        }
        let expected = [("DELAYED", 30), ("DELAYED", 30), ("BOARDING", 30), ("AIRBORNE", 0)];
        assert_eq!(statuses, expected.map(|(status, minutes)| (status.to_owned(), minutes)));
    }

    #[test]
    fn what_is_no_delay_of_a_flight_is_not_heard() {
        let mut traffic = Traffic::new();
        for payload in
            ["", "[]", "{}", r#"{"id": "XX1", "minutes": 5}"#, r#"{"id": "ST101", "minutes": -5}"#]
        {
            assert!(!traffic.hear(payload.as_bytes()), "{payload}");
        }
        assert!(traffic.hear(br#"{"id": "ST101", "minutes": 99999999}"#));
        assert_eq!(traffic.flight("ST101").unwrap().delay_minutes, DELAY_MINUTES_MAX);
        assert_eq!(traffic, {
            let mut other = Traffic::new();
            other.announce_delay("ST101", u16::MAX);
            other
        });
    }
}
