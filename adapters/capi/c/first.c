#define _POSIX_C_SOURCE 199309L
#include "tidelock.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>

typedef struct Position {
    float x;
} Position;

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, td_last_error());
    return 1;
}

static uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

int main(int argc, char **argv) {
    /* the schema: the same as #[net(step = 0.01, range = -500.0..=500.0)] x: f32 in Rust */
    const TdField x = {.name = "x", .offset = offsetof(Position, x), .kind = TD_STEP_F32, .step = 0.01, .min = -500, .max = 500};
    const TdComponent component = {
        .name = "position", .size = sizeof(Position), .fields = &x, .field_count = 1, .flags = TD_COMPONENT_INTERPOLATE};
    const TdKind kind = {.name = "rover", .policy = TD_POLICY_OWNER};
    uint32_t position, rover;
    TdSchema *schema = td_schema_new("rovers in C");
    if (td_schema_component(schema, &component, &position) != TD_OK || td_schema_kind(schema, &kind, &rover) != TD_OK ||
        td_schema_build(schema) != TD_OK) {
        return fail("the schema");
    }

    TdPeer *peer = NULL;
    if (argc > 1) {
        if (td_join_quic(schema, NULL, argv[1], &peer) != TD_OK) {
            return fail("td_join_quic");
        }
    } else {
        char address[256];
        if (td_host_quic(schema, NULL, "127.0.0.1:0", &peer) != TD_OK ||
            td_peer_address(peer, address, sizeof address) != TD_OK) {
            return fail("td_host_quic");
        }
        printf("%s\n", address);
    }
    td_schema_free(schema);

    const uint64_t start = now_us();
    uint64_t mine = 0;
    for (int frame = 0;; frame++) {
        const uint64_t now = now_us() - start;
        TdEvent event;
        TdStep step;
        if (td_receive(peer, now) != TD_OK) { /* network in */
            return fail("td_receive");
        }
        while (td_poll_event(peer, &event) == TD_OK) {
            if (event.event == TD_EVENT_DISCONNECTED) {
                fprintf(stderr, "the session is over: %s\n", event.text);
                td_peer_free(peer);
                return 1;
            }
        }
        while (td_next_step(peer, &step) == TD_OK) { /* the ticks that are due */
            Position at = {0};
            if (mine == 0) { /* at a guest, names for new entities are on their way for a moment: it is tried again */
                const TdValue value = {position, &at, sizeof at};
                td_spawn(peer, rover, &value, 1, &mine);
            } else if (td_get(peer, mine, position, &at, sizeof at) == TD_OK) {
                at.x = at.x < 100 ? at.x + 5 * step.seconds : 0; /* to the right, and round again */
                td_set(peer, mine, position, &at, sizeof at);
            }
        }
        if (td_send(peer, now) != TD_OK) { /* network out */
            return fail("td_send");
        }
        uint64_t entities[16];
        Position places[16];
        size_t count = 0;
        if (td_present(peer, position, now, entities, places, sizeof places[0], 16, &count) == TD_OK && frame % 60 == 0) {
            for (size_t i = 0; i < count; i++) { /* what to draw, at this very moment */
                printf("%s rover is at %.2f\n", entities[i] == mine ? "my" : "another's", places[i].x);
            }
        }
        fflush(stdout);
        const struct timespec pause = {0, 16000000};
        nanosleep(&pause, NULL); /* a game would wait for the screen */
    }
}
