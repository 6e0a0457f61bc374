//! Promises, one by one.

use super::*;

fn with_eye(settings: Relevance, eye: [f32; 3]) -> Stage {
    let mut stage = Stage::new(settings, 1);
    stage.guests[0].viewer.set_viewpoint(Viewpoint::Point(eye));
    stage
}

/// Counts what one guest is told of each slot.
fn watch(stage: &mut Stage, looks: u64, told: &mut (usize, usize)) {
    for _ in 0..looks {
        stage.look();
        told.0 += stage.changes.shown.len();
        told.1 += stage.changes.hidden.len();
    }
}

/// Case 8: overlapping rooms.
#[test]
fn whoever_is_in_both_rooms_notices_no_move_between_them() {
    let (a, b, d) = (Room(1), Room(2), Room(4));
    let mut stage = with_eye(Relevance::within(50.0), [0.0; 3]);
    let e = stage.spawn_at([1.0, 0.0, 0.0]);
    [a, b].into_iter().for_each(|room| stage.scope.join_room(e, room));
    [a, b, d].into_iter().for_each(|room| stage.guests[0].viewer.join_room(room));
    let mut told = (0, 0);
    watch(&mut stage, 9, &mut told);
    assert_eq!(told, (1, 0));
    assert!(stage.scope.leave_room(e, a));
    watch(&mut stage, 9, &mut told);
    assert!(stage.scope.leave_room(e, b));
    stage.scope.join_room(e, d);
    watch(&mut stage, 9, &mut told);
    assert_eq!(told, (1, 0), "nothing has changed for the guest");
    assert!(stage.guests[0].viewer.leave_room(d));
    watch(&mut stage, 1, &mut told);
    assert_eq!(told, (1, 1), "at once");
    assert_eq!(stage.explain(0, e), Err(Unseen::OtherRoom));
    assert_eq!(stage.changes.hidden, [(e, Unseen::OtherRoom)]);
}

#[test]
fn entering_twice_needs_leaving_twice() {
    let mut stage = with_eye(Relevance::everything(), [0.0; 3]);
    let e = stage.spawn_at([1.0, 0.0, 0.0]);
    (0..2).for_each(|_| stage.scope.join_room(e, Room(7)));
    stage.look();
    assert_eq!(stage.seen(0), []);
    (0..2).for_each(|_| stage.guests[0].viewer.join_room(Room(7)));
    stage.look();
    assert_eq!(stage.seen(0), [e]);
    assert!(stage.guests[0].viewer.leave_room(Room(7)));
    stage.look();
    assert_eq!(stage.seen(0), [e]);
    assert!(stage.guests[0].viewer.leave_room(Room(7)) && !stage.guests[0].viewer.leave_room(Room(7)));
    stage.look();
    assert_eq!(stage.seen(0), []);
    assert!(stage.scope.leave_room(e, Room(7)));
    stage.looks(9);
    assert_eq!(stage.seen(0), [], "it is in the room still");
    assert!(stage.scope.leave_room(e, Room(7)) && !stage.scope.leave_room(e, Room(7)));
    stage.look();
    assert_eq!(stage.seen(0), [e], "in no room, for everybody");
}

#[test]
fn what_walks_along_a_border_does_not_come_and_go() {
    for settings in [Relevance::within(50.0), Relevance::nearest(1)] {
        let mut stage = with_eye(settings.refresh(1), [0.0; 3]);
        let e = stage.spawn_at([49.0, 0.0, 0.0]);
        let other = stage.spawn_at([-50.5, 0.0, 0.0]);
        let mut told = (0, 0);
        watch(&mut stage, 1, &mut told);
        for i in 0..100 {
            stage.put(e, [if i % 2 == 0 { 51.0 } else { 49.0 }, 0.0, 0.0]);
            watch(&mut stage, 1, &mut told);
        }
        assert_eq!(told, (1, 0));
        stage.put(e, [60.0, 0.0, 0.0]);
        stage.put(other, [-49.0, 0.0, 0.0]);
        watch(&mut stage, 1, &mut told);
        assert_eq!(stage.seen(0), [other], "beyond the margin");
        assert_eq!(told, (2, 1));
    }
}

#[test]
fn odd_places_and_viewpoints_hurt_nobody() {
    for settings in [Relevance::within(1e9), Relevance::nearest(3), Relevance::within(f32::NAN), Relevance::within(f32::INFINITY)]
    {
        let is_nan = settings.limit == Limit::Within(0.0);
        let mut stage = with_eye(settings.cell(1e-3), [0.0; 3]);
        let near = stage.spawn_at([1.0, 2.0, 3.0]);
        let nan = stage.spawn_at([f32::NAN, 0.0, 0.0]);
        let endless = stage.spawn_at([0.0, f32::NEG_INFINITY, 0.0]);
        let far = stage.spawn_at([1e30, -1e30, f32::MAX]);
        stage.looks(5);
        assert_eq!(stage.seen(0).contains(&near), !is_nan);
        for slot in [nan, endless] {
            assert_eq!(stage.explain(0, slot), Err(Unseen::TooFar));
        }
        for eye in [[f32::MAX; 3], [-1e30, 0.0, 1e30], [1e-30, -1e-30, 0.0]] {
            stage.guests[0].viewer.set_viewpoint(Viewpoint::Point(eye));
            stage.looks(5);
            assert_eq!(stage.seen(0).contains(&near), stage.explain(0, near).is_ok());
            assert_eq!(stage.seen(0).contains(&far), stage.explain(0, far).is_ok());
        }
        stage.guests[0].viewer.set_viewpoint(Viewpoint::Point([0.0, f32::NAN, 0.0]));
        stage.look();
        assert_eq!(stage.seen(0), []);
        assert_eq!(stage.explain(0, near), Err(Unseen::NoViewpoint));
    }
}

#[test]
fn what_is_born_within_the_horizon_is_shown_at_once_and_a_slot_used_again_is_another() {
    let mut stage = with_eye(Relevance::nearest(2).refresh(1000), [0.0; 3]);
    let (first, second) = (stage.spawn_at([10.0, 0.0, 0.0]), stage.spawn_at([20.0, 0.0, 0.0]));
    stage.look();
    let near = stage.spawn_at([15.0, 0.0, 0.0]);
    let far = stage.spawn_at([30.0, 0.0, 0.0]);
    stage.look();
    assert_eq!(stage.seen(0), [first, second, near]);
    assert_eq!(stage.explain(0, far), Err(Unseen::TooFar));
    stage.end(near);
    let again = stage.spawn_at([12.0, 0.0, 0.0]);
    assert_eq!(again, near, "the slot is used again");
    stage.look();
    assert_eq!(stage.changes.shown.iter().map(|s| s.slot).collect::<Vec<_>>(), [again]);
    assert_eq!(stage.changes.hidden, []);
    stage.end(again);
    stage.look();
    assert_eq!(stage.seen(0), [first, second]);
    assert_eq!(stage.changes.hidden, [], "the end of an entity is told by others");
}

#[test]
fn an_own_entity_is_seen_whatever_forbids_it_and_what_hangs_on_it_only_if_all_may_be_seen() {
    let mut stage = Stage::new(Relevance::within(10.0).rule(|s| s.get::<Odd>().is_none()), 2);
    let (parent, own, hat) = (stage.spawn_at([0.0; 3]), stage.spawn((At([0.0; 3]), Odd), false), stage.spawn_at([0.0; 3]));
    stage.own(own, 1, 1);
    stage.hang(own, Some(parent));
    stage.hang(hat, Some(own));
    stage.look();
    assert_eq!(stage.seen(0), [parent, own, hat]);
    assert_eq!(stage.explain(1, own), Err(Unseen::Rule));
    assert_eq!(stage.explain(1, hat), Err(Unseen::Parent));
    stage.world.insert_one(stage.entity(parent), Odd).unwrap();
    stage.look();
    assert_eq!(stage.seen(0), [own], "its own, and nothing that hangs on what is forbidden");
    assert_eq!(stage.explain(0, hat), Err(Unseen::Parent));
    stage.own(own, 1, 2);
    stage.look();
    assert_eq!((stage.seen(0), stage.seen(1)), (vec![], vec![own]), "it has changed hands");
    assert_eq!(stage.changes.hidden, []);
    assert_eq!(stage.explain(0, own), Err(Unseen::Rule));
}

#[test]
fn a_group_comes_whole_with_its_nearest_member_and_counts_by_its_members() {
    let mut stage = with_eye(Relevance::nearest(3).refresh(1), [0.0; 3]);
    let root = stage.spawn_at([900.0, 0.0, 0.0]);
    let children: Vec<u32> = (0..3).map(|i| stage.spawn_at([10.0 + i as f32, 0.0, 0.0])).collect();
    children.iter().for_each(|c| stage.hang(*c, Some(root)));
    let single = stage.spawn_at([11.0, 0.0, 0.0]);
    stage.look();
    assert_eq!(stage.seen(0), [root, children[0], children[1], children[2]], "nearest, and more than asked for");
    assert_eq!(stage.explain(0, single), Err(Unseen::TooFar));
    stage.put(single, [1.0, 0.0, 0.0]);
    stage.look();
    assert_eq!(stage.seen(0).len(), 5, "the single one does not fill it");
    stage.scope.see_together(&[single, root]);
    let filler = stage.spawn_at([2.0, 0.0, 0.0]);
    stage.look();
    assert_eq!(stage.seen(0).len(), 5);
    stage.scope.part(single);
    stage.look();
    assert!(stage.seen(0).contains(&filler));
}

#[test]
fn a_parent_that_gets_its_name_later_counts_from_then_on() {
    let mut stage = with_eye(Relevance::everything().rule(|s| s.get::<Odd>().is_none()), [0.0; 3]);
    let nameless = stage.world.spawn((Odd,));
    let child = stage.spawn((ChildOf { parent: Some(nameless) },), false);
    stage.look();
    assert_eq!(stage.seen(0), [child]);
    stage.entities.insert(&mut stage.world, NetId(500), nameless, 0);
    stage.look();
    assert_eq!(stage.seen(0), []);
    assert_eq!(stage.explain(0, child), Err(Unseen::Parent));
}

#[test]
fn many_births_at_once_are_all_looked_at() {
    let mut stage = with_eye(Relevance::within(5000.0).refresh(1000), [0.0; 3]);
    stage.look();
    for i in 0..3000 {
        stage.spawn_at([i as f32, 0.0, 0.0]);
    }
    stage.look();
    assert_eq!(stage.seen(0).len(), 3000);
    (0..3000).for_each(|slot| stage.end(slot));
    stage.look();
    assert_eq!(stage.seen(0), []);
}

#[test]
fn a_type_that_the_schema_does_not_have_is_named() {
    struct Stranger;
    let schema = schema();
    let error = |settings: Relevance| Scope::new(settings, &schema.0).map(drop).unwrap_err();
    let named = |error| matches!(error, UsageError::NotInSchema(name) if name.contains("Stranger"));
    assert!(named(error(Relevance::everything().always::<Stranger>())));
    assert!(named(error(Relevance::everything().weight::<Stranger>(2.0))));
    assert!(named(error(Relevance::everything().show_only::<Stranger>(|_| true))));
}

#[test]
fn heavier_and_nearer_is_more_important_and_far_is_seldom() {
    let detail = Detail { full: 10.0, slowest: 6 };
    let mut stage = with_eye(Relevance::everything().weight::<Banner>(4.0).detail(detail), [0.0; 3]);
    let slots: Vec<u32> = [5.0, 15.0, 35.0, 1e9].into_iter().map(|x| stage.spawn_at([x, 0.0, 0.0])).collect();
    let banner = stage.spawn((At([5.0, 0.0, 0.0]),), true);
    stage.look();
    let told = |slot: &u32| stage.guests[0].got[slot].shown;
    assert_eq!(slots.iter().map(|s| told(s).period).collect::<Vec<_>>(), [1, 2, 4, 6]);
    assert!(slots.windows(2).all(|w| told(&w[0]).weight > told(&w[1]).weight), "nearer is more");
    assert_eq!(told(&banner).weight, 4.0 * told(&slots[0]).weight);
    let mut changes = 0;
    for i in 0..100 {
        stage.put(slots[0], [if i % 2 == 0 { 9.5 } else { 10.5 }, 0.0, 0.0]);
        stage.look();
        changes += stage.changes.changed.len();
    }
    assert!(changes <= 2, "{changes} changes at a border");
}

#[test]
fn a_viewer_is_small() {
    let mut stage = with_eye(Relevance::nearest(256).refresh(1), [0.0; 3]);
    let slots: Vec<u32> = (0..1000).map(|i| stage.spawn_at([i as f32, 0.0, (i * i % 97) as f32])).collect();
    for round in 0..200 {
        stage.put(slots[round * 3], [round as f32, 0.0, 0.0]);
        stage.look();
    }
    let viewer = &stage.guests[0].viewer;
    assert_eq!(viewer.seen.len(), 256);
    let bytes = size_of_val(viewer) + viewer.seen.capacity() * size_of_val(&viewer.seen[0]);
    assert!(bytes <= 20_000, "{bytes} bytes");
}

#[test]
fn rooms_of_a_root_hold_for_all_that_hangs_on_it() {
    let mut stage = with_eye(Relevance::nearest(8), [0.0; 3]);
    let slots: Vec<u32> = (0..5).map(|i| stage.spawn_at([i as f32, 0.0, 0.0])).collect();
    slots.windows(2).for_each(|w| stage.hang(w[1], Some(w[0])));
    stage.look();
    assert_eq!(stage.seen(0), slots);
    stage.scope.join_room(slots[0], Room(3));
    stage.look();
    assert_eq!(stage.seen(0), []);
    assert_eq!(stage.explain(0, slots[4]), Err(Unseen::Parent));
    stage.hang(slots[2], None);
    stage.look();
    assert_eq!(stage.seen(0), slots[2..]);
    stage.guests[0].viewer.join_room(Room(3));
    stage.look();
    assert_eq!(stage.seen(0), slots);
}

#[test]
fn the_log_of_changes_does_not_grow() {
    let mut stage = with_eye(Relevance::everything(), [0.0; 3]);
    for _ in 0..500 {
        let slots: Vec<u32> = (0..10).map(|i| stage.spawn_at([i as f32, 0.0, 0.0])).collect();
        stage.look();
        slots.into_iter().for_each(|slot| stage.end(slot));
        let kept = stage.scope.log.end() - stage.scope.log.start;
        assert!(kept < 100, "{kept} changes are kept");
    }
}
