/* A guest in C: describes the components that its host has, owns a player that it moves, predicts a rover that it steers, and in
 * the end prints the world that it holds, one line per entity and component.
 *
 *     guest ADDRESS#FINGERPRINT
 */

#include "tidelock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct Position {
    float at[2];
} Position;

typedef struct Health {
    uint16_t points;
} Health;

typedef struct Label {
    char text[13];
    uint64_t leader;
} Label;

typedef struct Stick {
    float at[2];
} Stick;

enum { ROOM = 256, STEPS = 90, SECONDS = 60, DONE = 9999 };

static uint32_t position, health, label, crate, player, rover;

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, td_last_error());
    return 1;
}

static uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static TdField steps(const char *name, size_t offset, float within) {
    TdField field = {.name = name, .offset = offset, .kind = TD_STEP_F32, .count = 2, .step = 0.01, .min = -within, .max = within};
    return field;
}

static TdSchema *describe(void) {
    const TdField place[] = {steps("0", offsetof(Position, at), 500.0f)};
    const TdField points[] = {{.name = "0", .offset = offsetof(Health, points), .kind = TD_U16}};
    const TdField words[] = {
        {.name = "text", .offset = offsetof(Label, text), .kind = TD_TEXT, .cap = 12},
        {.name = "leader", .offset = offsetof(Label, leader), .kind = TD_ENTITY_OR_NONE},
    };
    const TdField pull[] = {steps("0", offsetof(Stick, at), 1.0f)};
    const TdComponent positions = {.name = "position",
                                   .size = sizeof(Position),
                                   .fields = place,
                                   .field_count = 1,
                                   .flags = TD_COMPONENT_INTERPOLATE | TD_COMPONENT_CHECKPOINT};
    const TdComponent healths = {
        .name = "health", .size = sizeof(Health), .fields = points, .field_count = 1, .policy = TD_POLICY_HOST};
    const TdComponent labels = {.name = "label", .size = sizeof(Label), .fields = words, .field_count = 2};
    const TdComponent stick = {.name = "stick", .size = sizeof(Stick), .fields = pull, .field_count = 1};
    const TdKind crates = {.name = "crate", .policy = TD_POLICY_HOST};
    const TdKind players = {.name = "player", .policy = TD_POLICY_OWNER};
    const TdKind rovers = {.name = "rover", .policy = TD_POLICY_HOST_PREDICTED};
    TdSchema *schema = td_schema_new("three ends");
    if (td_schema_component(schema, &positions, &position) == TD_OK && td_schema_component(schema, &healths, &health) == TD_OK &&
        td_schema_component(schema, &labels, &label) == TD_OK && td_schema_kind(schema, &crates, &crate) == TD_OK &&
        td_schema_kind(schema, &players, &player) == TD_OK && td_schema_kind(schema, &rovers, &rover) == TD_OK &&
        td_schema_input(schema, &stick) == TD_OK && td_schema_build(schema) == TD_OK) {
        return schema;
    }
    td_schema_free(schema);
    return NULL;
}

/* What every peer does in a step: here, rovers go where they are steered, and the player that is ours goes to the right. */
static int simulate(TdPeer *peer, uint64_t mine, int steps_run) {
    TdStep step;
    TdStatus status;
    while ((status = td_next_step(peer, &step)) == TD_OK) {
        uint64_t entities[ROOM];
        size_t count = 0;
        if (td_simulated(peer, position, entities, ROOM, &count) != TD_OK) {
            return -1;
        }
        for (size_t i = 0; i < count; i++) {
            uint32_t owner = 0;
            Position at;
            Stick stick;
            if (td_get(peer, entities[i], position, &at, sizeof at) != TD_OK) {
                return -1;
            }
            if (entities[i] == mine) {
                at.at[0] += steps_run < STEPS ? 0.25f : 0.0f;
            } else if (td_owner(peer, entities[i], 0, &owner) == TD_OK && td_input(peer, owner, &stick, sizeof stick) == TD_OK) {
                at.at[0] += 0.25f * stick.at[0];
                at.at[1] += 0.25f * stick.at[1];
            }
            if (td_set(peer, entities[i], position, &at, sizeof at) != TD_OK) {
                return -1;
            }
        }
        steps_run += !step.rerun;
    }
    return status == TD_NONE ? steps_run : -1;
}

/* The host says that all is done by the health of some entity. */
static bool is_done(TdPeer *peer) {
    uint64_t entities[ROOM];
    size_t count = 0;
    if (td_entities(peer, health, entities, ROOM, &count) != TD_OK) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        Health points;
        if (td_get(peer, entities[i], health, &points, sizeof points) == TD_OK && points.points == DONE) {
            return true;
        }
    }
    return false;
}

static int print_world(TdPeer *peer) {
    uint64_t entities[ROOM];
    size_t count = 0;
    if (td_entities(peer, TD_ANY, entities, ROOM, &count) != TD_OK) {
        return fail("td_entities");
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t name = 0;
        Position at;
        Health points;
        Label words;
        td_name_of(peer, entities[i], &name);
        if (td_get(peer, entities[i], position, &at, sizeof at) == TD_OK) {
            printf("%llu position %ld %ld\n", (unsigned long long)name, lroundf(at.at[0] * 100), lroundf(at.at[1] * 100));
        }
        if (td_get(peer, entities[i], health, &points, sizeof points) == TD_OK) {
            printf("%llu health %u\n", (unsigned long long)name, points.points);
        }
        if (td_get(peer, entities[i], label, &words, sizeof words) == TD_OK) {
            uint64_t leader = 0;
            if (words.leader != 0) {
                td_name_of(peer, words.leader, &leader);
            }
            printf("%llu label %s %llu\n", (unsigned long long)name, words.text, (unsigned long long)leader);
        }
    }
    printf("end\n");
    return 0;
}

static int play(TdPeer *peer) {
    const uint64_t start = now_us();
    uint64_t mine = 0;
    size_t drawn = 0;
    int steps_run = 0;
    while (now_us() - start < (uint64_t)SECONDS * 1000000u) {
        const uint64_t now = now_us() - start;
        const Stick stick = {{steps_run < STEPS ? 1.0f : 0.0f, 0.0f}};
        TdEvent event;
        if (td_receive(peer, now) != TD_OK || td_set_input(peer, &stick, sizeof stick) != TD_OK) {
            return fail("td_receive");
        }
        while (td_poll_event(peer, &event) == TD_OK) {
            if (event.event == TD_EVENT_DISCONNECTED) {
                fprintf(stderr, "disconnected: %s\n", event.text);
                return 1;
            }
            if (event.event == TD_EVENT_UNSENDABLE || event.event == TD_EVENT_MISSED || event.event == TD_EVENT_OTHER) {
                fprintf(stderr, "unexpected: %u %s\n", event.event, event.text);
                return 1;
            }
        }
        steps_run = simulate(peer, mine, steps_run);
        if (steps_run < 0) {
            return fail("a step");
        }
        if (mine == 0 && steps_run > 0) {
            const Position at = {{-100.0f, 1.5f}};
            Label words = {"from C", 0};
            const TdValue values[] = {{position, &at, sizeof at}, {label, &words, sizeof words}};
            if (td_spawn(peer, player, values, 2, &mine) != TD_OK) {
                return fail("td_spawn");
            }
            words.leader = mine;
            if (td_set(peer, mine, label, &words, sizeof words) != TD_OK) {
                return fail("td_set");
            }
        }
        if (td_send(peer, now) != TD_OK) {
            return fail("td_send");
        }
        uint64_t entities[ROOM];
        Position places[ROOM];
        size_t count = 0;
        if (td_present(peer, position, now, entities, places, sizeof places[0], ROOM, &count) != TD_OK) {
            return fail("td_present");
        }
        drawn = count > drawn ? count : drawn;
        if (is_done(peer)) {
            printf("drawn %zu\n", drawn);
            return print_world(peer);
        }
        const struct timespec pause = {0, 2000000};
        nanosleep(&pause, NULL);
    }
    fprintf(stderr, "the host did not say in time that all is done\n");
    return 1;
}

int main(int argc, char **argv) {
    const TdConfig config = {.name = "a guest in C"};
    TdPeer *peer = NULL;
    uint64_t digest = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: guest ADDRESS#FINGERPRINT\n");
        return 2;
    }
    TdSchema *schema = describe();
    if (schema == NULL || td_schema_digest(schema, &digest) != TD_OK) {
        return fail("the schema");
    }
    printf("digest %016llx\n", (unsigned long long)digest);
    fflush(stdout);
    if (td_join_quic(schema, &config, argv[1], &peer) != TD_OK) {
        td_schema_free(schema);
        return fail("td_join_quic");
    }
    td_schema_free(schema);
    int result = play(peer);
    fflush(stdout);
    td_disconnect(peer);
    td_peer_free(peer);
    return result;
}
