// A detached std::thread whose payload releases structs in its destructor, which is noexcept, as in
// Arrow C++ or libcudf. pthread_exit() in such a frame aborts the process.

#include <atomic>
#include <thread>

namespace {

std::atomic<int> n_released{0};

struct Payload {
    void (*const *release)(void *);
    void *const *structs;
    int n;

    ~Payload() {
        for (int i = 0; i < n; i++) {
            release[i](structs[i]);
            n_released++;
        }
    }
};

} // namespace

extern "C" void
release_on_thread(void (*const *release)(void *), void *const *structs, int n) {
    std::thread([=] { Payload payload{release, structs, n}; }).detach();
}

extern "C" int
released_so_far() {
    return n_released;
}
