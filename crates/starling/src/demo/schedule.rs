//! The flights of the demo: routes, airlines and times.

/// One flight of the daily schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledFlight {
    /// The flight's id: airline code and number.
    pub id: &'static str,
    /// The airport code of the origin.
    pub origin: &'static str,
    /// The airport code of the destination.
    pub destination: &'static str,
    /// The airline code.
    pub airline: &'static str,
    /// The type of aircraft, one of the airline's fleet.
    pub aircraft: &'static str,
    /// The local time of departure, as 24-hour clock.
    pub departure: &'static str,
    /// The time in the air, in minutes.
    pub minutes: u16,
    /// The cruising altitude, in metres.
    pub cruising_altitude: u16,
}

/// All flights, ordered by departure.
pub const FLIGHTS: [ScheduledFlight; 20] = [
    flight("ST101", "AMS", "LIS", "A320neo", "06:20", 175, 11_280),
    flight("HR204", "LHR", "ATH", "A321neo", "06:45", 225, 11_890),
    flight("PF611", "KEF", "LHR", "B737-8", "07:00", 185, 11_580),
    flight("SW310", "ARN", "ZRH", "A220-300", "07:10", 150, 11_280),
    flight("CG77", "ZRH", "VIE", "E195-E2", "07:25", 80, 8_530),
    flight("IM502", "FCO", "CDG", "A220-300", "07:40", 130, 10_970),
    flight("ST128", "AMS", "OSL", "E195-E2", "08:05", 105, 10_360),
    flight("HR219", "LHR", "DUB", "A320neo", "08:15", 80, 7_920),
    flight("SW345", "OSL", "ARN", "A220-300", "08:30", 60, 7_310),
    flight("IM514", "FCO", "AMS", "A320neo", "09:00", 155, 11_280),
    flight("PF617", "KEF", "OSL", "B737-8", "09:20", 165, 11_580),
    flight("CG81", "ZRH", "LHR", "E195-E2", "09:35", 105, 10_970),
    flight("ST142", "AMS", "VIE", "A320neo", "10:10", 110, 10_670),
    flight("HR233", "LHR", "LIS", "A321neo", "10:30", 165, 11_280),
    flight("SW352", "ARN", "FCO", "A220-300", "11:00", 190, 11_890),
    flight("IM529", "ATH", "FCO", "A320neo", "11:25", 125, 10_970),
    flight("PF623", "KEF", "CDG", "B737-8", "12:00", 205, 11_580),
    flight("CG95", "VIE", "ZRH", "E195-E2", "12:20", 85, 8_530),
    flight("ST160", "CDG", "AMS", "E195-E2", "13:05", 75, 7_620),
    flight("HR250", "DUB", "LHR", "A320neo", "13:30", 80, 7_920),
];

/// Creates a flight. The airline is the first two letters of its id.
const fn flight(
    id: &'static str,
    origin: &'static str,
    destination: &'static str,
    aircraft: &'static str,
    departure: &'static str,
    minutes: u16,
    cruising_altitude: u16,
) -> ScheduledFlight {
    let (airline, _) = id.split_at(2);
    ScheduledFlight {
        id,
        origin,
        destination,
        airline,
        aircraft,
        departure,
        minutes,
        cruising_altitude,
    }
}
