/* What an engine counted, as a struct and as JSON (which the runner gives to check_stats.py). */
#include "setup.h"

int main(void) {
    fullbore_engine *engine = null_engine();
    fullbore_target *target = null_target(engine, 64 * MIB);
    fullbore_client *client = client_of(engine);
    static uint8_t memory[MIB];
    fullbore_stats stats = {.size = sizeof stats};
    CHECK_OK(fullbore_stats_get(engine, &stats));
    CHECK(stats.lanes == 2 && stats.commands == 0 && stats.bytes == 0 && stats.active == 0);
    for (uint64_t i = 0; i < 64; i++) {
        fullbore_extent extent = {.offset = i * MIB, .ptr = memory, .len = MIB};
        submit_one(client, transfer_of(FULLBORE_OP_READ, target, &extent, 1));
        if (i == 63) { /* under way, or there and not fetched */
            CHECK_OK(fullbore_stats_get(engine, &stats));
            CHECK_IS(stats.active, 1);
        }
        CHECK_IS(next_of(client).result, 0);
    }
    check_quiet(engine);
    CHECK_OK(fullbore_stats_get(engine, &stats));
    CHECK_IS(stats.size, sizeof stats);
    CHECK_IS(stats.bytes, 64 * MIB);
    CHECK_IS(stats.commands, 64 * 8); /* of 128 KiB */
    CHECK(stats.max_in_flight >= 1 && stats.lanes_dead == 0 && stats.retries == 0);

    /* The text: its length is told, and what there is no room for is cut, with a NUL. */
    int64_t len = fullbore_stats_json(engine, NULL, 0);
    CHECK(len > 100);
    char *all = malloc((size_t)len + 64), *cut = malloc(20);
    CHECK(all != NULL && cut != NULL);
    int64_t written = fullbore_stats_json(engine, all, (size_t)len + 64);
    CHECK(written > 0 && written < len + 64);
    CHECK_IS(strlen(all), written);
    for (size_t room = 1; room <= 20; room++) {
        memset(cut, 0xA5, 20);
        CHECK(fullbore_stats_json(engine, cut, room) >= (int64_t)room);
        CHECK_IS(strlen(cut), room - 1);
        CHECK(strncmp(cut, all, room - 1) == 0);
        for (size_t i = room; i < 20; i++)
            CHECK_IS((uint8_t)cut[i], 0xA5);
    }
    FILE *file = fopen("stats.json", "w");
    CHECK(file != NULL && fputs(all, file) >= 0);
    CHECK_OK(fclose(file));
    free(all);
    free(cut);
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_engine_destroy(engine));
    return 0;
}
