// SPDX-License-Identifier: Apache-2.0
// A simulator that adds 1 to bytes, as a program: docs/simulator-protocol.md in C++, sharing
// no code with what it is tested with. It does one thing wrong on request:
//
//     adder [FRAME KIND]      at the FRAME-th frame that it sends, the first is 0
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

using Bytes = std::vector<unsigned char>;

static long wrong_frame = -1;
static std::string kind;
static long frames_sent = 0;
static std::uint32_t number = 0;

static void put(Bytes &bytes, std::uint64_t value, int count)
{
    for (int index = 0; index < count; ++index) {
        bytes.push_back(static_cast<unsigned char>(value >> (8 * index)));
    }
}

static std::uint64_t get(const Bytes &bytes, std::size_t at, int count)
{
    std::uint64_t value = 0;
    for (int index = 0; index < count; ++index) {
        value |= static_cast<std::uint64_t>(bytes.at(at + static_cast<std::size_t>(index))) << (8 * index);
    }
    return value;
}

static void write_all(const Bytes &bytes, std::size_t count)
{
    std::size_t at = 0;
    while (at < count) {
        const ssize_t written = write(1, bytes.data() + at, count - at);
        if (written <= 0) {
            std::exit(0);
        }
        at += static_cast<std::size_t>(written);
    }
}

static Bytes frame_of(std::uint64_t length, const std::string &type, std::uint32_t of,
                      const Bytes &payload)
{
    Bytes frame;
    put(frame, length, 4);
    frame.insert(frame.end(), type.begin(), type.end());
    put(frame, of, 4);
    frame.insert(frame.end(), payload.begin(), payload.end());
    return frame;
}

[[noreturn]] static void stall()
{
    for (;;) {
        pause();
    }
}

static void send_wrong(const std::string &type, Bytes payload)
{
    Bytes frame = frame_of(payload.size(), type, number, payload);

    if (kind == "exit") {
        std::fprintf(stderr, "adder: leaving\n");
        std::_Exit(7);
    } else if (kind == "kill") {
        raise(SIGKILL);
    } else if (kind == "abort") {
        std::abort();
    } else if (kind == "stall") {
        stall();
    } else if (kind == "close") {
        close(1);
        stall();
    } else if (kind == "half") {
        write_all(frame, frame.size() / 2);
        std::_Exit(0);
    } else if (kind == "half-stall") {
        write_all(frame, frame.size() - 1);
        stall();
    } else if (kind == "header") {
        write_all(frame, 12);
        std::_Exit(0);
    } else if (kind == "huge") {
        frame = frame_of(0xFFFFFFFFu, type, number, payload);
    } else if (kind == "too-large") {
        payload.resize(65545);
        frame = frame_of(payload.size(), type, number, payload);
    } else if (kind == "largest") {
        payload.resize(65544);
        frame = frame_of(payload.size(), type, number, payload);
    } else if (kind == "longer") {
        payload.push_back(0);
        frame = frame_of(payload.size(), type, number, payload);
    } else if (kind == "shorter") {
        if (!payload.empty()) {
            payload.pop_back();
        }
        frame = frame_of(payload.size(), type, number, payload);
    } else if (kind == "empty") {
        frame = frame_of(0, type, number, Bytes());
    } else if (kind == "promises-more") {
        frame = frame_of(payload.size() + 4, type, number, payload);
    } else if (kind == "promises-less") {
        frame = frame_of(payload.size() / 2, type, number, payload);
    } else if (kind == "type") {
        frame = frame_of(payload.size(), "what", number, payload);
    } else if (kind == "other-type") {
        frame = frame_of(payload.size(), type == "writ" ? "read" : "writ", number, payload);
    } else if (kind == "note-type") {
        frame = frame_of(payload.size(), "NOTE", number, payload);
    } else if (kind == "load-type") {
        frame = frame_of(payload.size(), "LOAD", number, payload);
    } else if (kind == "number") {
        frame = frame_of(payload.size(), type, number + 1, payload);
    } else if (kind == "twice") {
        write_all(frame, frame.size());
    } else if (kind == "print") {
        const std::string text = "debug: here I am\n";
        write_all(Bytes(text.begin(), text.end()), text.size());
    } else if (kind == "fail") {
        const std::string text = "the weights\nare lost";
        frame = frame_of(text.size(), "FAIL", number, Bytes(text.begin(), text.end()));
    } else if (kind == "chatter") {
        const std::string line(200, 'x');
        for (int count = 0; count < 1000; ++count) {
            std::fprintf(stderr, "%s\n", line.c_str());
        }
    } else {
        std::exit(2);
    }
    write_all(frame, frame.size());
}

static void send(const std::string &type, const Bytes &payload)
{
    if (frames_sent++ == wrong_frame) {
        send_wrong(type, payload);
    } else {
        const Bytes frame = frame_of(payload.size(), type, number, payload);
        write_all(frame, frame.size());
    }
}

static Bytes read_exactly(std::size_t count)
{
    Bytes bytes(count);
    std::size_t at = 0;
    while (at < count) {
        const ssize_t received = read(0, bytes.data() + at, count - at);
        if (received <= 0) {
            std::exit(0);
        }
        at += static_cast<std::size_t>(received);
    }
    return bytes;
}

static std::string receive(Bytes &payload)
{
    const Bytes header = read_exactly(12);
    payload = read_exactly(get(header, 0, 4));
    number = static_cast<std::uint32_t>(get(header, 8, 4));
    return std::string(header.begin() + 4, header.begin() + 8);
}

static std::map<std::uint64_t, std::uint64_t> registers;
static std::uint64_t clock_now = 0;

static void add_part(std::uint64_t offset, std::uint64_t count)
{
    Bytes request;
    Bytes answer;
    put(request, registers[4] + offset, 4);
    put(request, count, 4);
    send("LOAD", request);
    receive(answer);
    if (get(answer, 0, 4) != 0) {
        std::fprintf(stderr, "adder: cannot load\n");
        std::_Exit(9);
    }
    Bytes stored;
    put(stored, registers[8] + offset, 4);
    put(stored, count, 4);
    for (std::size_t index = 4; index < answer.size(); ++index) {
        stored.push_back(static_cast<unsigned char>(answer[index] + 1));
    }
    send("STOR", stored);
    receive(answer);
    if (get(answer, 0, 4) != 0) {
        std::fprintf(stderr, "adder: cannot store\n");
        std::_Exit(9);
    }
}

static void run_job()
{
    const std::uint64_t begin = clock_now;
    const std::uint32_t request = number;
    for (std::uint64_t offset = 0; offset < registers[12]; offset += 65536) {
        const std::uint64_t left = registers[12] - offset;
        add_part(offset, left < 65536 ? left : 65536);
    }
    clock_now += registers[12];
    number = request;
    Bytes note;
    put(note, begin, 8);
    put(note, clock_now, 8);
    put(note, clock_now, 8);
    put(note, 5, 4);
    put(note, 5, 4);
    const std::string texts("adderadd 1");
    note.insert(note.end(), texts.begin(), texts.end());
    send("NOTE", note);
    registers[0] = 1;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        wrong_frame = std::atol(argv[1]);
        kind = argv[2];
    }
    for (;;) {
        Bytes payload;
        Bytes answer;
        const std::string type = receive(payload);

        if (type == "HELO") {
            put(answer, 1, 4);
            send("helo", answer);
        } else if (type == "RSET") {
            registers.clear();
            clock_now = 0;
            send("rset", answer);
        } else if (type == "READ") {
            put(answer, registers[get(payload, 0, 4)], 4);
            send("read", answer);
        } else if (type == "WRIT") {
            registers[get(payload, 0, 4)] = get(payload, 4, 4);
            if (get(payload, 0, 4) == 16) {
                run_job();
            }
            send("writ", answer);
        } else if (type == "WAIT") {
            put(answer, registers[0], 4);
            send("wait", answer);
        } else if (type == "CNTR") {
            put(answer, clock_now, 8);
            for (int index = 0; index < 6; ++index) {
                put(answer, UINT64_MAX, 8);
            }
            send("cntr", answer);
        } else {
            return 2;
        }
    }
}
