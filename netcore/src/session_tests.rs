use super::*;
use crate::control::{Digest, PROTOCOL_VERSIONS, Verdict, decode, encode};
use crate::emulator::{Conditions, Emulator};
use crate::transport::Lane;
use proptest::prelude::*;

fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn entries(list: &[(&str, u64)]) -> Vec<SchemaEntry> {
    list.iter().map(|&(name, digest)| SchemaEntry { name: name.into(), digest }).collect()
}

fn terms(list: &[(&str, u64)]) -> Terms {
    let digest = list.iter().fold(1u64, |d, (n, x)| d.wrapping_mul(31) ^ x ^ n.len() as u64);
    Terms::new(PROTOCOL_VERSIONS, digest, &entries(list))
}

fn same() -> Terms {
    terms(&[("position", 1), ("hat", 2)])
}

fn welcome(version: u16) -> Welcome {
    Welcome { version, session: 9, epoch: 1, peer: 4, tick_rate: 60, time_us: 0, lease: 1 << 16, peers: vec![], tables: None }
}

fn refusal(host: &Terms, guest: &Terms) -> String {
    match host.agree(&guest.hello("a")) {
        Err(DisconnectReason::Schema(text)) => text,
        other => panic!("no refusal of the schema: {other:?}"),
    }
}

#[test]
fn the_highest_version_in_common_is_spoken() {
    let host = Terms::new(&[5, 2, 3], 0, &[]);
    let agree = |versions: &[u16]| host.agree(&Terms::new(versions, 0, &[]).hello("a"));
    assert_eq!(agree(&[1, 2, 3, 4]), Ok(3));
    assert_eq!(agree(&[5]), Ok(5));
    assert_eq!(agree(&[4, 6]), Err(DisconnectReason::Version("2, 3, 5".into())));
    assert_eq!(agree(&[]), Err(DisconnectReason::Version("2, 3, 5".into())));
}

#[test]
fn the_order_of_registration_does_not_matter() {
    let reversed = Terms::new(PROTOCOL_VERSIONS, same().digest, &entries(&[("hat", 2), ("position", 1)]));
    assert_eq!(same().agree(&reversed.hello("a")), Ok(1));
}

#[test]
fn what_differs_is_named_in_order() {
    let host = terms(&[("position", 1), ("hat", 2), ("door", 3)]);
    let guest = terms(&[("position", 9), ("cap", 2), ("door", 3), ("zebra", 4)]);
    assert_eq!(
        refusal(&host, &guest),
        "cap: only the guest has it; hat: only the host has it; position: other layout; zebra: only the guest has it"
    );
    let settings = Terms::new(PROTOCOL_VERSIONS, 1, &host.schema);
    assert_eq!(refusal(&host, &settings), "the parts are alike, their settings are not");
}

#[test]
fn many_differences_are_counted_and_the_text_stays_bounded() {
    let names: Vec<String> = (0..300).map(|i| format!("a component of some length, number {i:03}")).collect();
    let list: Vec<_> = names.iter().map(|n| (n.as_str(), 1)).collect();
    let text = refusal(&terms(&list), &terms(&[("zebra", 1)]));
    assert!(text.len() <= limits::CLOSE_TEXT_BYTES && text.ends_with(" more"), "{} bytes: {text}", text.len());
    let shown = text.matches("only the host has it").count();
    assert!(text.ends_with(&format!("; and {} more", 301 - shown)), "{shown} shown: {text}");
    assert!(text.starts_with("a component of some length, number 000: only the host has it"));
}

#[test]
fn what_did_not_fit_the_greeting_is_not_called_missing() {
    let names: Vec<String> = (0..limits::MESSAGES).map(|i| format!("{i:064}")).collect();
    let list: Vec<_> = names.iter().map(|n| (n.as_str(), 1)).collect();
    let (host, guest) = (terms(&list), Terms::new(PROTOCOL_VERSIONS, 5, &entries(&list)));
    assert!(!guest.hello("a").complete);
    assert_eq!(refusal(&host, &guest), "in parts beyond those that fit the greeting");
    let mut nothing = guest.hello("a");
    nothing.schema.clear();
    let beyond = "in parts beyond those that fit the greeting".to_string();
    assert_eq!(host.agree(&nothing), Err(DisconnectReason::Schema(beyond)));
}

#[test]
fn a_host_refuses_what_is_out_of_order_full_or_late() {
    let start = || HostGreeting::start(s(5));
    let early = start().handle_message(Control::LeaseRequest, &same(), Some(1)).unwrap_err();
    assert_eq!(early.reason, DisconnectReason::Malformed);
    assert!(matches!(early.fault, Some(PeerError::OutOfOrder(_))));
    let hello = || Control::Hello(same().hello("mara"));
    assert_eq!(start().handle_message(hello(), &same(), None), Err(Refused { reason: DisconnectReason::Full, fault: None }));
    let admitted = HostAdmitted { peer: 4, version: 1, name: "mara".into(), tables: None };
    assert_eq!(start().handle_message(hello(), &same(), Some(4)), Ok(admitted.clone()));
    // tables are no matter of agreement: the host hears which the guest has, whatever its own are
    let has = Control::Hello(same().with_tables(Some(9)).hello("mara"));
    let host = same().with_tables(Some(8));
    assert_eq!(start().handle_message(has, &host, Some(4)), Ok(HostAdmitted { tables: Some(9), ..admitted }));

    assert_eq!(start().next_deadline(), s(5) + limits::HANDSHAKE_TIME);
    let waiting = start().handle_deadline(s(5) + limits::HANDSHAKE_TIME - ms(1)).expect("not yet");
    assert_eq!(
        waiting.handle_deadline(s(5) + limits::HANDSHAKE_TIME),
        Err(Refused { reason: DisconnectReason::TimedOut, fault: None })
    );
    let garbage = start().handle_fault(PeerError::OverLimit { what: "a test" });
    assert_eq!((garbage.reason, garbage.fault.is_some()), (DisconnectReason::Malformed, true));
}

#[test]
fn a_guest_takes_only_a_fitting_welcome() {
    for wrong in [Control::LeaseRequest, Control::Hello(same().hello("a")), Control::Welcome(welcome(7))] {
        let mut guest = Guest::new(same(), "a", s(0));
        let current = guest.generation();
        assert!(guest.handle_opened(current).is_some());
        assert!(matches!(guest.handle_message(current, wrong), Err(PeerError::OutOfOrder(_))));
        assert_eq!(*guest.state(), GuestState::Ended(Ended { reason: DisconnectReason::Malformed }));
    }
    let mut guest = Guest::new(same(), "a", s(0));
    let early = guest.handle_message(guest.generation(), Control::Welcome(welcome(1)));
    assert!(matches!(early, Err(PeerError::OutOfOrder(_))), "before the link is open");
}

#[test]
fn a_late_answer_does_not_revive_an_attempt() {
    let mut guest = Guest::new(same(), "a", s(0));
    let old = guest.generation();
    assert!(guest.handle_opened(old).is_some());
    guest.cancel();
    let ended = guest.state().clone();
    assert_eq!(ended, GuestState::Ended(Ended { reason: DisconnectReason::Left }));
    assert_eq!(guest.handle_message(old, Control::Welcome(welcome(1))), Ok(()));
    assert_eq!(guest.handle_opened(old), None);
    guest.handle_closed(old, LinkError::TimedOut);
    assert_eq!(*guest.state(), ended, "the end stays what it was");

    let new = guest.begin(s(20));
    let before = guest.state().clone();
    assert_eq!(guest.handle_opened(old), None);
    assert_eq!(guest.handle_message(old, Control::Welcome(welcome(1))), Ok(()));
    guest.handle_closed(old, LinkError::TimedOut);
    assert_eq!(*guest.state(), before, "nor do the old attempt's answers touch the new one");
    assert!(guest.handle_opened(new).is_some() && guest.handle_opened(new).is_none(), "it greets once");
    assert_eq!(guest.handle_message(new, Control::Welcome(welcome(1))), Ok(()));
    assert!(matches!(guest.state(), GuestState::Admitted(_)));
}

#[test]
fn a_guest_gives_up_at_its_deadline() {
    let mut guest = Guest::new(same(), "a", s(1));
    assert_eq!(guest.next_deadline(), Some(s(1) + limits::HANDSHAKE_TIME));
    assert!(guest.handle_opened(guest.generation()).is_some());
    assert_eq!(guest.next_deadline(), Some(s(1) + limits::HANDSHAKE_TIME), "the time runs from the beginning");
    assert!(!guest.handle_deadline(s(10)) && guest.handle_deadline(s(11)));
    assert_eq!(*guest.state(), GuestState::Ended(Ended { reason: DisconnectReason::TimedOut }));
    assert!(guest.next_deadline().is_none() && !guest.handle_deadline(s(100)));
}

#[test]
fn the_end_of_a_link_is_understood_and_its_words_cleaned() {
    let mut guest = Guest::new(same(), "a", s(0));
    let text = format!("hat: only\u{1b} the host has it{}", "x".repeat(2000));
    guest.handle_closed(guest.generation(), LinkError::ClosedByPeer { code: 9, text });
    let GuestState::Ended(Ended { reason: DisconnectReason::Schema(text) }) = guest.state() else {
        panic!("{:?}", guest.state())
    };
    assert!(text.starts_with("hat: only the host has it") && text.len() == limits::CLOSE_TEXT_BYTES);
    let unreachable = LinkError::Unreachable("no way".into());
    assert_eq!(reason_of(unreachable.clone()), DisconnectReason::Link(unreachable));
}

#[test]
fn after_admission_each_side_says_only_what_is_its_own() {
    let hosts = [
        Control::Joined { peer: 1, name: String::new() },
        Control::Left { peer: 1, code: 1, text: String::new() },
        Control::Lease { first: 0 },
        // whoever asks for a comparison makes the other side hash its whole world
        Control::Digest(Digest { round: 1, parts: Vec::new() }),
    ];
    for message in hosts {
        assert!(Admitted::check(&message).is_ok() && HostAdmitted::check(&message).is_err(), "{message:?}");
    }
    for message in [Control::LeaseRequest, Control::Verdict(Verdict { round: 1, differing: Vec::new() })] {
        assert!(Admitted::check(&message).is_err() && HostAdmitted::check(&message).is_ok(), "{message:?}");
    }
    for message in [Control::Hello(same().hello("a")), Control::Welcome(welcome(1))] {
        assert!(Admitted::check(&message).is_err() && HostAdmitted::check(&message).is_err(), "{message:?}");
    }
}

/// What a run of a real pair showed, in the words of `docs/STATES.md`.
#[derive(Default)]
struct Seen {
    guest: Vec<&'static str>,
    host: Vec<&'static str>,
    end: Option<(DisconnectReason, DisconnectReason)>,
}

fn note(list: &mut Vec<&'static str>, state: &'static str) {
    if list.last() != Some(&state) {
        list.push(state);
    }
}

/// A host and a guest over two emulated lanes; the link opens after one way, and a refusal closes it.
fn drive(seed: u64, conditions: Conditions, host_terms: &Terms, guest_terms: Terms, free: Option<u16>) -> Seen {
    let (mut up, mut down) = (Emulator::new(seed, conditions), Emulator::new(!seed, conditions));
    let mut guest = Guest::new(guest_terms, "mara", ms(0));
    let attempt = guest.generation();
    let mut greeting = Some(HostGreeting::start(conditions.latency));
    let (mut seen, mut bytes, mut payload) = (Seen::default(), Vec::new(), Vec::new());
    let mut told = None;
    note(&mut seen.guest, "Connecting");
    note(&mut seen.host, "Greeting");
    for now in (0..12_000).step_by(5).map(ms) {
        if now >= conditions.latency
            && let Some(hello) = guest.handle_opened(attempt)
        {
            bytes.clear();
            encode(&hello, &mut bytes);
            up.send_message(now, Lane::CONTROL, &bytes, ());
        }
        if up.poll(now, &mut payload).is_some()
            && let Some(host) = greeting.take()
        {
            bytes.clear();
            match host.handle_message(decode(&payload).expect("a message"), host_terms, free) {
                Ok(admitted) => {
                    note(&mut seen.host, "Admitted");
                    encode(&Control::Welcome(Welcome { peer: admitted.peer, ..welcome(admitted.version) }), &mut bytes);
                    down.send_message(now, Lane::CONTROL, &bytes, ());
                }
                Err(refused) => {
                    note(&mut seen.host, "Refused");
                    let (code, text) = refused.reason.to_wire();
                    bytes.extend_from_slice(&code.to_le_bytes());
                    bytes.extend_from_slice(text.as_bytes());
                    down.send_last(now, &bytes, ());
                    told = Some(refused.reason);
                }
            }
        }
        match down.poll(now, &mut payload).map(|a| a.path) {
            Some(crate::emulator::Path::Last) => {
                let (code, text) = payload.split_first_chunk().expect("a code");
                let text = String::from_utf8(text.to_vec()).expect("text");
                guest.handle_closed(attempt, LinkError::ClosedByPeer { code: u32::from_le_bytes(*code), text });
            }
            Some(_) => guest.handle_message(attempt, decode(&payload).expect("a message")).expect("a welcome"),
            None => {}
        }
        guest.handle_deadline(now);
        if let Some(Err(_)) = greeting.clone().map(|g| g.handle_deadline(now)) {
            note(&mut seen.host, "Refused");
            (greeting, told) = (None, Some(DisconnectReason::TimedOut));
        }
        note(
            &mut seen.guest,
            match guest.state() {
                GuestState::Connecting(_) => "Connecting",
                GuestState::Greeting(_) => "Greeting",
                GuestState::Admitted(_) => "Admitted",
                GuestState::Ended(_) => "Ended",
            },
        );
    }
    if let (GuestState::Ended(ended), Some(told)) = (guest.state(), told) {
        seen.end = Some((told, ended.reason.clone()));
    }
    seen
}

#[test]
fn a_real_pair_goes_through_the_states_as_drawn() {
    for seed in 0..100 {
        let rough = Conditions { latency: ms(60), jitter: ms(40), loss: 0.2, ..Default::default() };
        let seen = drive(seed, rough, &same(), same(), Some(4));
        assert_eq!(seen.guest, ["Connecting", "Greeting", "Admitted"], "SEED={seed}");
        assert_eq!(seen.host, ["Greeting", "Admitted"], "SEED={seed}");

        let other = terms(&[("position", 3), ("hat", 2)]);
        for (host_terms, free, reason) in [
            (&other, Some(4), DisconnectReason::Schema("position: other layout".into())),
            (&Terms::new(&[8], 0, &[]), Some(4), DisconnectReason::Version("8".into())),
            (&same(), None, DisconnectReason::Full),
        ] {
            let seen = drive(seed, rough, host_terms, same(), free);
            assert_eq!(seen.guest, ["Connecting", "Greeting", "Ended"], "SEED={seed} {reason}");
            assert_eq!(seen.host, ["Greeting", "Refused"], "SEED={seed} {reason}");
            assert_eq!(seen.end, Some((reason.clone(), reason)), "SEED={seed}: both ends give the same reason");
        }
    }
}

#[test]
fn a_guest_that_hears_too_late_gives_up() {
    let deaf = Conditions { latency: s(30), ..Default::default() };
    let seen = drive(1, Conditions { latency: s(4), ..Default::default() }, &same(), same(), Some(4));
    assert_eq!(seen.guest, ["Connecting", "Greeting", "Ended"], "its answer comes after 12 seconds");
    assert_eq!(drive(1, deaf, &same(), same(), Some(4)).guest, ["Connecting", "Ended"]);
}

proptest! {
    #[test]
    fn any_two_schemas_are_compared_within_bounds(
        host in proptest::collection::vec((".{0,70}", 0u64..3), 0..60),
        guest in proptest::collection::vec((".{0,70}", 0u64..3), 0..60),
        complete in any::<bool>(),
    ) {
        let list = |l: &[(String, u64)]| l.iter().map(|(n, d)| SchemaEntry { name: n.clone(), digest: *d }).collect::<Vec<_>>();
        let host = Terms::new(&[1], 1, &list(&host));
        let mut hello = Terms::new(&[1], 2, &[]).hello("a");
        hello.schema = list(&guest);
        hello.complete = complete;
        let Err(DisconnectReason::Schema(text)) = host.agree(&hello) else { panic!("other digests") };
        prop_assert!(!text.is_empty() && text.len() <= limits::CLOSE_TEXT_BYTES, "{} bytes", text.len());
    }
}
