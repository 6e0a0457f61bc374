//! What a person, or a script, is told.

use crate::game::Agreed;
use crate::gauge::View;
use crate::roles::{Guest, Host, Phase};
use crate::stadium;
use crate::trail::Corrected;
use std::fmt::Write;
use std::time::Duration;

/// The figures of one moment. `None`: this process cannot know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    now: Duration,
    entities: usize,
    /// The most that a guest sees.
    visible: usize,
    /// Since the session began, per guest, in kilobits per second with everything that UDP, QUIC and IP add.
    down: f64,
    up: f64,
    delay_ms: Option<f64>,
    starved_pct: Option<f64>,
    stale_pct: Option<f64>,
    oldest_ms: Option<f64>,
    oldest_now_ms: Option<f64>,
    corrections: Option<u64>,
    refused: Option<u64>,
    lost: u64,
    computed: Computed,
}

/// What became of predictions, and of what every peer computes.
#[derive(Clone, Copy, Debug, Default)]
struct Computed {
    /// Corrections of all guests, by cause. `None`: none of them is in this process.
    corrected: Option<Corrected>,
    /// Ticks that a guest ran again, per second.
    reruns_per_second: Option<f64>,
    /// Ticks that guests compared with the host's.
    rollback: u64,
    lockstep: u64,
    /// Those of them that differed.
    differing: u64,
    /// Orders that guests gave.
    given: u64,
    /// Those that took effect.
    sealed: u64,
}

impl Computed {
    fn take(&mut self, agreed: &Agreed, sealed: u32) {
        self.rollback += u64::from(agreed.rollback);
        self.lockstep += u64::from(agreed.lockstep);
        self.differing += u64::from(agreed.differing);
        self.given += u64::from(agreed.orders);
        self.sealed += u64::from(sealed);
    }

    fn of(host: Option<&Host>, guests: &[Guest]) -> Self {
        let mut computed = Self::default();
        match host {
            Some(host) => host.agreed.iter().for_each(|(guest, agreed)| computed.take(agreed, host.trail.orders_of(*guest))),
            None => {
                let results = guests.iter().filter_map(|g| Some((g.comparison.result?, g.trail.orders_of(g.peer.local()))));
                results.for_each(|(agreed, sealed)| computed.take(&agreed, sealed));
            }
        }
        if !guests.is_empty() {
            let sum = guests.iter().map(|g| g.corrected).fold(Corrected::default(), Corrected::plus);
            computed.corrected = Some(sum);
            let seconds: f64 = guests.iter().map(|g| g.link.time.as_secs_f64()).sum();
            computed.reruns_per_second = Some(guests.iter().map(|g| g.trail.reruns).sum::<u64>() as f64 / seconds.max(1e-9));
        }
        computed
    }

    fn words(&self, say: &mut impl FnMut(&str, String)) {
        if let Some(c) = self.corrected {
            let causes = format!("{} input late, {} others' doing, {} spawns refused", c.late_input, c.other, c.refused);
            say("predictions corrected", causes);
            say("rollbacks for an input guessed wrong", format!("{}, the deepest of {} ticks", c.rollbacks, c.deepest));
        }
        if let Some(reruns) = self.reruns_per_second {
            say("ticks run again per guest", format!("{reruns:.0} a second"));
        }
        let ticks = format!("{} rollback, {} lockstep, {} of them differ", self.rollback, self.lockstep, self.differing);
        say("computed ticks compared", ticks);
        let lost = self.given.saturating_sub(self.sealed);
        say("orders to the crowd", format!("{} given, {} took effect, {lost} lost", self.given, self.sealed));
    }

    fn json(&self) -> String {
        let of = |of: fn(&Corrected) -> u64| whole(self.corrected.as_ref().map(of));
        format!(
            concat!(
                r#""predicted_late_input":{},"predicted_other":{},"predicted_refused":{},"rollbacks":{},"deepest":{},"reruns_per_second":{},"#,
                r#""rollback_compared":{},"lockstep_compared":{},"ticks_differing":{},"orders_given":{},"orders_sealed":{},"orders_lost":{}"#
            ),
            of(|c| c.late_input),
            of(|c| c.other),
            of(|c| c.refused),
            of(|c| c.rollbacks),
            of(|c| c.deepest),
            number(self.reruns_per_second),
            self.rollback,
            self.lockstep,
            self.differing,
            self.given,
            self.sealed,
            self.given.saturating_sub(self.sealed),
        )
    }
}

impl Figures {
    /// What is known now.
    pub(crate) fn of(host: Option<&Host>, guests: &[Guest], now: Duration) -> Self {
        let mut figures = Self { now, visible: stadium::visible(host, guests), ..Self::default() };
        if let Some(host) = host {
            figures.take_host(host);
        }
        if !guests.is_empty() {
            figures.take_guests(guests);
        }
        figures.computed = Computed::of(host, guests);
        figures
    }

    fn take_host(&mut self, host: &Host) {
        self.entities = host.entities();
        let links = || host.links.values();
        self.refused = Some(links().map(|l| l.stats.link.refused).sum());
        self.lost += links().map(|l| l.stats.transport.packets_lost).sum::<u64>();
        let time = links().map(|l| l.time).sum();
        self.down = kbps(links().map(|l| l.stats.transport.bytes_out).sum(), time);
        self.up = kbps(links().map(|l| l.stats.transport.bytes_in).sum(), time);
    }

    fn take_guests(&mut self, guests: &[Guest]) {
        let count = guests.len() as f64;
        let mean = |of: &dyn Fn(&Guest) -> f64| guests.iter().map(of).sum::<f64>() / count;
        self.entities = self.entities.max(guests.iter().map(|g| g.peer.entity_count()).max().unwrap_or(0));
        self.down = mean(&|g| kbps(g.link.stats.transport.bytes_in, g.link.time));
        self.up = mean(&|g| kbps(g.link.stats.transport.bytes_out, g.link.time));
        self.delay_ms = Some(mean(&|g| g.delay.as_secs_f64() * 1e3));
        let part = |of: fn(&View) -> u64| {
            let frames: u64 = guests.iter().map(|g| g.view.frames).sum();
            guests.iter().map(|g| of(&g.view)).sum::<u64>() as f64 * 100.0 / frames.max(1) as f64
        };
        self.starved_pct = Some(part(|v| v.starved));
        self.stale_pct = Some(part(|v| v.stale));
        let worst = |of: fn(&View) -> Duration| guests.iter().map(|g| of(&g.view)).max().map(|d| d.as_secs_f64() * 1e3);
        self.oldest_ms = worst(|v| v.oldest);
        self.oldest_now_ms = worst(|v| v.oldest_now);
        self.corrections = Some(guests.iter().map(|g| g.view.corrections).sum());
        self.lost += guests.iter().map(|g| g.link.stats.transport.packets_lost).sum::<u64>();
    }

    /// One line of live figures.
    pub(crate) fn line(&self, phase: Phase) -> String {
        let mut line = match phase {
            Phase::Gathering => format!("{:>4} s  guests are coming in", self.now.as_secs()),
            Phase::Settling { .. } | Phase::Over => format!("{:>4} s  changes have stopped, comparing", self.now.as_secs()),
            Phase::Playing { .. } => format!("{:>4} s  {} entities, {} seen", self.now.as_secs(), self.entities, self.visible),
        };
        // writing to a string does not fail
        let _ = write!(line, "  per guest down {:.0} up {:.0} kbit/s", self.down, self.up);
        if let (Some(delay), Some(oldest), Some(starved)) = (self.delay_ms, self.oldest_now_ms, self.starved_pct) {
            let _ = write!(line, "  delay {delay:.0} ms  oldest {oldest:.0} ms  starved {starved:.1} %");
        }
        if let Some(refused) = self.refused {
            let _ = write!(line, "  refused {refused}");
        }
        let _ = write!(line, "  lost {}", self.lost);
        line
    }
}

/// What a run was started with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Conditions {
    /// The shim's round trip in milliseconds.
    pub(crate) latency: u32,
    /// The shim's jitter in milliseconds, each way.
    pub(crate) jitter: u32,
    /// The shim's loss, each way.
    pub(crate) loss: f64,
    /// Of bots and shim.
    pub(crate) seed: u64,
}

/// A whole run.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    equal: bool,
    guests: usize,
    ticks: u64,
    seconds: f64,
    conditions: Conditions,
    raw_kbps: Option<f64>,
    figures: Figures,
}

impl Report {
    /// Of a run that is over.
    pub(crate) fn new(conditions: Conditions, host: Option<&Host>, guests: &[Guest]) -> Self {
        let ticks = host.map_or_else(|| guests.iter().map(|g| g.ticks).max().unwrap_or(0), |h| h.ticks);
        let seconds =
            host.map_or_else(|| guests.iter().map(|g| g.link.time).max().unwrap_or_default(), Host::played).as_secs_f64();
        let figures = Figures::of(host, guests, Duration::ZERO);
        Self {
            equal: host.is_none_or(|h| h.verdict().is_ok()) && guests.iter().all(|g| g.verdict().is_ok()),
            guests: host.map_or(guests.len(), |h| h.verdicts.len()),
            ticks,
            seconds,
            raw_kbps: host.map(|h| h.raw.per_guest(h.verdicts.len()) * 8.0 / 1e3 / seconds.max(1e-9)),
            conditions,
            figures,
        }
    }

    /// In words, or as one line of JSON.
    pub(crate) fn print(&self, json: bool) {
        if json { println!("{}", self.json()) } else { print!("\n{}", self.words()) }
    }

    fn words(&self) -> String {
        let f = &self.figures;
        let mut text = String::new();
        let mut say = |what: &str, value: String| {
            // writing to a string does not fail
            let _ = writeln!(text, "{what:<38}{value}");
        };
        say("all worlds ended equal", if self.equal { "yes".into() } else { "NO".into() });
        say("played", format!("{} ticks, {} entities at the end, {} guests", self.ticks, f.entities, self.guests));
        say("a guest sees at most", format!("{} entities", f.visible));
        say("traffic per guest, down", format!("{:.0} kbit/s on the wire{}", f.down, self.against_raw()));
        say("traffic per guest, up", format!("{:.0} kbit/s on the wire", f.up));
        if let Some(delay) = f.delay_ms {
            say("others are drawn in the past by", format!("{delay:.0} ms"));
        }
        if let Some(oldest) = f.oldest_ms {
            say("oldest news of any entity", format!("{oldest:.0} ms"));
        }
        if let (Some(starved), Some(stale)) = (f.starved_pct, f.stale_pct) {
            say("frames drawn past the newest news", format!("{starved:.1} %, stale {stale:.1} %"));
        }
        if let Some(refused) = f.refused {
            say("writes that the host refused", format!("{refused} (bots cheat now and then, on purpose)"));
        }
        if let Some(corrections) = f.corrections {
            say("values put back at their owners", format!("{corrections}"));
        }
        f.computed.words(&mut say);
        say("packets that QUIC lost", format!("{}", f.lost));
        text
    }

    fn against_raw(&self) -> String {
        self.raw_kbps.map_or(String::new(), |raw| {
            format!(", {:.1} % of the {raw:.0} kbit/s of plain structs", self.figures.down * 100.0 / raw.max(1e-9))
        })
    }

    fn json(&self) -> String {
        let (f, c) = (&self.figures, &self.conditions);
        format!(
            concat!(
                r#"{{"arena":true,"equal":{},"guests":{},"entities":{},"visible":{},"ticks":{},"seconds":{:.2},"rtt_ms":{},"jitter_ms":{},"#,
                r#""loss":{},"kbps_down_per_guest":{:.1},"kbps_up_per_guest":{:.1},"raw_kbps":{},"interpolation_delay_ms":{},"#,
                r#""starved_pct":{},"oldest_ms":{},"refused":{},"corrections":{},{},"quic_lost":{},"seed":{}}}"#
            ),
            self.equal,
            self.guests,
            f.entities,
            f.visible,
            self.ticks,
            self.seconds,
            c.latency,
            c.jitter,
            c.loss,
            f.down,
            f.up,
            number(self.raw_kbps),
            number(f.delay_ms),
            number(f.starved_pct),
            number(f.oldest_ms),
            whole(f.refused),
            whole(f.corrections),
            f.computed.json(),
            f.lost,
            c.seed,
        )
    }
}

/// `null` is what this process cannot know.
fn number(value: Option<f64>) -> String {
    value.map_or("null".into(), |value| format!("{value:.1}"))
}

fn whole(value: Option<u64>) -> String {
    value.map_or("null".into(), |value| value.to_string())
}

fn kbps(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8.0 / 1e3 / time.as_secs_f64() }
}
