//! The three ways to run: all in one process, as a host, as a guest. Each judges for itself.

use crate::failure::Failure;
use crate::live;
use crate::options::{AllOptions, Common, HostOptions, JoinOptions, shim, weather};
use crate::report::{Conditions, Figures, Report};
use crate::roles::{FOREVER, Guest, Host, Phase, Setup};
use crate::stadium;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tidelock_quic::shim::{Shim, ShimConfig};
use tidelock_quic::{Identity, JoinConfig, ListenConfig, QuicTransport, Timing};

/// A frame.
const FRAME: Duration = Duration::from_nanos(1_000_000_000 / 60);
/// How long all guests of one process may take to come in.
pub(crate) const GATHER: Duration = Duration::from_secs(20);
/// Seconds of a game whose length nobody has said.
const SECONDS: u32 = 10;
/// How long guests may take to hear that the host has gone.
const PART: Duration = Duration::from_secs(2);

/// Frames at an even pace.
pub(crate) struct Pace {
    start: Instant,
    next: Duration,
    /// Whole seconds that were told.
    told: u64,
}

impl Pace {
    /// From now on.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), next: Duration::ZERO, told: 0 }
    }

    /// Waits for the next frame; its time.
    pub(crate) fn frame(&mut self) -> Duration {
        let now = self.start.elapsed();
        match self.next.checked_sub(now) {
            Some(rest) => std::thread::sleep(rest),
            // too slow: frames are left out, not made up for
            None => self.next = now,
        }
        self.next += FRAME;
        self.start.elapsed()
    }

    /// Is a line of figures due?
    fn is_new_second(&mut self, now: Duration) -> bool {
        let new = now.as_secs() > self.told;
        self.told = now.as_secs();
        new
    }
}

/// A host and its guests in this process.
///
/// # Errors
/// [`Failure`].
pub(crate) fn all_in_one(options: &AllOptions) -> Result<(), Failure> {
    let common = &options.common;
    let live = !options.plain && !common.json && live::is_possible();
    let mut all = All::new(options, live)?;
    let report = match live {
        true => live::play(&mut all)?,
        false => {
            println!("{}", all.introduction());
            play(&mut all)?
        }
    };
    report.print(common.json);
    all.guests.iter().try_for_each(Guest::verdict)?;
    all.host.verdict()
}

/// A host and its guests, and the bad network between them.
pub(crate) struct All<'a> {
    options: &'a AllOptions,
    pub(crate) host: Host,
    pub(crate) guests: Vec<Guest>,
    shim: Option<Shim>,
    /// How the network is now.
    pub(crate) conditions: Conditions,
    /// Where guests go to.
    target: String,
    /// Entities that each of them keeps.
    share: usize,
    /// Guests that there ever were.
    named: u64,
}

impl<'a> All<'a> {
    /// All of them, on their way into a session. One that is `live` begins with the first guest, and its network can be changed.
    ///
    /// # Errors
    /// [`Failure`]: this machine has no socket left.
    pub(crate) fn new(options: &'a AllOptions, live: bool) -> Result<Self, Failure> {
        let &AllOptions { guests, entities, units, seconds, latency, jitter, loss, ref common, .. } = options;
        let conditions = Conditions { latency, jitter, loss, seed: common.seed };
        let share = if options.stadium { stadium::DRONES } else { entities as usize / (usize::from(guests) + 1) };
        let rest = (entities as usize).saturating_sub(share * usize::from(guests));
        let (transport, address) = listen(([127, 0, 0, 1], 0).into(), guests, common.timing())?;
        let (shim, address) = match live {
            true => start(address, shim(&conditions))?,
            false => shimmed(address, &conditions)?,
        };
        let target = format!("{address}#{}", transport.fingerprint());
        let wanted = if live { 1 } else { usize::from(guests) };
        let seconds = seconds.unwrap_or(if live { FOREVER } else { SECONDS });
        let mut host = Host::new(transport, &setup(common, rest, units, 0), wanted, seconds)?;
        if options.stadium {
            stadium::limit(&mut host, options.nearest as usize)?;
        }
        let mut all = Self { options, host, guests: Vec::new(), shim, conditions, target, share, named: 0 };
        for _ in 0..guests {
            all.add_guest()?;
        }
        Ok(all)
    }

    fn introduction(&self) -> String {
        let Conditions { latency, jitter, loss, seed } = self.conditions;
        format!(
            "{} guests and about {} entities for {} s, over QUIC with {latency} ms round trip, {jitter} ms jitter, {} % loss; seed {seed}",
            self.guests.len(),
            self.options.entities,
            self.options.seconds.unwrap_or(SECONDS),
            loss * 100.0,
        )
    }

    /// One more guest sets out.
    ///
    /// # Errors
    /// [`Failure::Join`] if this machine has no socket left.
    pub(crate) fn add_guest(&mut self) -> Result<(), Failure> {
        let common = &self.options.common;
        let transport = QuicTransport::join(&self.target, JoinConfig { deadline: GATHER, timing: common.timing() })?;
        self.named += 1;
        let name = format!("bot {}", self.named);
        self.guests.push(Guest::new(transport, &setup(common, self.share, 0, self.named), &name)?);
        Ok(())
    }

    /// The youngest guest leaves.
    pub(crate) fn remove_guest(&mut self) {
        if let Some(mut guest) = self.guests.pop() {
            guest.leave();
            let_go(guest);
        }
    }

    /// The network becomes better or worse.
    pub(crate) fn set_conditions(&mut self, conditions: Conditions) {
        if let Some(running) = self.shim.as_ref().filter(|_| conditions != self.conditions) {
            running.set(shim(&conditions));
            self.conditions = conditions;
        }
    }

    /// One frame of all.
    ///
    /// # Errors
    /// None in a correct program.
    pub(crate) fn frame(&mut self, now: Duration) -> Result<(), Failure> {
        self.host.frame(now)?;
        self.guests.iter_mut().try_for_each(|guest| guest.frame(now))
    }

    /// What came of it, once it is over; then the guests are told.
    ///
    /// # Errors
    /// None in a correct program.
    pub(crate) fn end(&mut self, pace: &mut Pace) -> Result<Report, Failure> {
        let report = Report::new(self.conditions, Some(&self.host), &self.guests);
        self.host.end();
        let until = pace.start.elapsed() + PART;
        while self.guests.iter().any(|guest| guest.outcome().is_none()) && pace.start.elapsed() < until {
            let now = pace.frame();
            self.guests.iter_mut().try_for_each(|guest| guest.frame(now))?;
        }
        Ok(report)
    }
}

/// Drops a guest, whose last words may take a second, without waiting for it.
pub(crate) fn let_go(guest: Guest) {
    std::thread::spawn(move || drop(guest));
}

/// Runs a host and its guests to their end.
fn play(all: &mut All<'_>) -> Result<Report, Failure> {
    let mut pace = Pace::new();
    while all.host.phase != Phase::Over {
        let now = pace.frame();
        all.frame(now)?;
        tell_remarks(&mut all.host);
        if pace.is_new_second(now) {
            let figures = Figures::of(Some(&all.host), &all.guests, now);
            println!("{}", figures.line(all.host.phase));
            all.guests.iter_mut().for_each(|guest| guest.view.oldest_now = Duration::ZERO);
        }
        let lost = all.guests.iter().find_map(|guest| guest.outcome().and_then(Result::err));
        if let Some(failure) = lost {
            return Err(failure);
        }
        if all.host.phase == Phase::Gathering && now > GATHER {
            return Err(Failure::Missing(all.host.guests().len(), all.guests.len()));
        }
    }
    all.end(&mut pace)
}

/// A host for guests in other processes.
///
/// # Errors
/// [`Failure`].
pub(crate) fn host(options: &HostOptions) -> Result<(), Failure> {
    let common = &options.common;
    let (transport, _) = listen(options.listen, 0, common.timing())?;
    println!("{}", transport.address());
    flush();
    eprintln!("waiting for guests: arena join {}", transport.address());
    let mut host = Host::new(transport, &setup(common, options.entities as usize, options.units, 0), 1, options.seconds)?;
    let mut pace = Pace::new();
    while host.phase != Phase::Over {
        let now = pace.frame();
        host.frame(now)?;
        tell_remarks(&mut host);
        if pace.is_new_second(now) && host.phase != Phase::Gathering {
            println!("{}", Figures::of(Some(&host), &[], now).line(host.phase));
            flush();
        }
    }
    let report = Report::new(Conditions { seed: common.seed, ..Conditions::default() }, Some(&host), &[]);
    let verdict = host.verdict();
    host.end();
    drop(host); // its guests are told
    report.print(common.json);
    verdict
}

/// A guest of a host in another process.
///
/// # Errors
/// [`Failure`].
pub(crate) fn join(options: &JoinOptions) -> Result<(), Failure> {
    let common = &options.common;
    let conditions = Conditions { latency: options.latency, jitter: options.jitter, loss: options.loss, seed: common.seed };
    let (_shim, target) = match weather(&conditions) {
        Some(_) => {
            let place = options.address.split_once('#').and_then(|(place, print)| Some((place.parse().ok()?, print)));
            let (place, print) = place.ok_or_else(|| Failure::NeedsNumbers(options.address.clone()))?;
            let (shim, address) = shimmed(place, &conditions)?;
            (shim, format!("{address}#{print}"))
        }
        None => (None, options.address.clone()),
    };
    // bots of several processes are not to do the same
    let setup = setup(common, options.entities as usize, 0, u64::from(std::process::id()) << 32);
    let join = JoinConfig { deadline: common.time_out(), timing: common.timing() };
    let mut guests = [Guest::new(QuicTransport::join(&target, join)?, &setup, "guest")?];
    let mut pace = Pace::new();
    let outcome = loop {
        let now = pace.frame();
        guests[0].frame(now)?;
        if let Some(outcome) = guests[0].outcome() {
            break outcome;
        }
        if pace.is_new_second(now) && guests[0].was_in() && !guests[0].finished {
            println!("{}", Figures::of(None, &guests, now).line(Phase::Playing { since: Duration::ZERO }));
            flush();
            guests[0].view.oldest_now = Duration::ZERO;
        }
    };
    if guests[0].was_in() {
        Report::new(conditions, None, &guests).print(common.json);
    }
    outcome
}

fn setup(common: &Common, share: usize, units: u32, salt: u64) -> Setup {
    Setup { share, units, seed: common.seed.wrapping_add(salt), send_every: common.send_every, time_out: common.time_out() }
}

/// A transport for a host, and where it really listens.
fn listen(addr: SocketAddr, guests: u16, timing: Timing) -> Result<(QuicTransport, SocketAddr), Failure> {
    let mut config = ListenConfig::new(addr, Identity::generate()?);
    // all guests of this process come from one address
    config.limits.per_address = config.limits.per_address.max(guests.into());
    config.timing = timing;
    let transport = QuicTransport::listen(config).map_err(Failure::Listen)?;
    let local = transport.local_addr().unwrap_or(addr);
    Ok((transport, local))
}

/// A bad network in front of `target`, unless it is to be perfect, and where to send to.
fn shimmed(target: SocketAddr, conditions: &Conditions) -> Result<(Option<Shim>, SocketAddr), Failure> {
    weather(conditions).map_or(Ok((None, target)), |weather| start(target, weather))
}

fn start(target: SocketAddr, weather: ShimConfig) -> Result<(Option<Shim>, SocketAddr), Failure> {
    let shim = Shim::start(target, weather).map_err(Failure::Shim)?;
    let address = shim.addr();
    Ok((Some(shim), address))
}

fn tell_remarks(host: &mut Host) {
    for remark in host.remarks.drain(..) {
        println!("{remark}");
        flush();
    }
}

/// Who reads through a pipe is to see each line at once.
fn flush() {
    // a reader that is gone needs no lines
    let _ = std::io::stdout().flush();
}
