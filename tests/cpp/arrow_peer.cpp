#include "arrow_peer.h"

#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/util/async_generator.h>
#include <arrow/util/future.h>
#include <arrow/util/thread_pool.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

namespace
{

using Batch = std::shared_ptr<arrow::RecordBatch>;

std::shared_ptr<arrow::Schema>
make_schema()
{
    return arrow::schema({arrow::field("x", arrow::int64())});
}

arrow::Result<Batch>
make_batch(long number)
{
    arrow::Int64Builder builder;
    ARROW_RETURN_NOT_OK(builder.Append(number));
    ARROW_RETURN_NOT_OK(builder.Append(-1));
    ARROW_ASSIGN_OR_RAISE(auto column, builder.Finish());
    return arrow::RecordBatch::Make(make_schema(), 2, {column});
}

arrow::Result<Batch>
next_of(const arrow_script &script, long number)
{
    if (script.delay_ms > 0) {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(script.delay_ms));
    }
    if (number == script.fail_at) {
        return arrow::Status::IOError("the disk of Arrow C++ is gone");
    }
    return number < script.n_batches ? make_batch(number) : Batch(nullptr);
}

struct Producer {
    arrow_script script;
    std::shared_ptr<std::atomic<long>> at =
        std::make_shared<std::atomic<long>>(0);
    arrow::Future<> done;
    std::thread thread;
    /* A wait for request() would block a thread of the pool forever. */
    std::shared_ptr<arrow::internal::ThreadPool> pool;
};

struct Consumer {
    arrow::Future<arrow::AsyncRecordBatchGenerator> start;
    arrow::AsyncGenerator<arrow::RecordBatchWithMetadata> generator;
    long n_read = 0;
};

arrow::AsyncGenerator<Batch>
generator_of(const Producer &producer)
{
    auto script = producer.script;
    auto at = producer.at;
    auto pool = producer.pool;
    if (script.is_async) {
        return [script, at, pool]() -> arrow::Future<Batch> {
            auto submitted = pool->Submit(
                [script, at] { return next_of(script, (*at)++); });
            return submitted.ok() ? *submitted
                                  : arrow::Future<Batch>::MakeFinished(
                                        submitted.status());
        };
    }
    return [script, at]() -> arrow::Future<Batch> {
        return arrow::Future<Batch>::MakeFinished(next_of(script, (*at)++));
    };
}

void
put(const std::string &from, char *text, int size)
{
    std::snprintf(text, static_cast<size_t>(size), "%s", from.c_str());
}

} // namespace

void *
arrow_producer_start(struct ArrowAsyncDeviceStreamHandler *handler,
                     const arrow_script *script)
{
    auto *self = new Producer;
    self->script = *script;
    self->pool = *arrow::internal::ThreadPool::Make(2);
    self->thread = std::thread([self, handler] {
        self->done = arrow::ExportAsyncRecordBatchReader(
            make_schema(), generator_of(*self),
            arrow::DeviceAllocationType::kCPU, handler);
    });
    return self;
}

int
arrow_producer_join(void *producer, char *text, int size)
{
    auto *self = static_cast<Producer *>(producer);
    self->thread.join();
    int result = -2;
    if (self->done.Wait(20.0)) {
        result = self->done.status().ok() ? 0 : -1;
        put(self->done.status().message(), text, size);
        /* done wakes this thread before the task that finished it has
         * returned. If the process exits meanwhile, the task uses static
         * objects of libarrow that are destroyed. */
        if (!self->pool->Shutdown().ok()) {
            result = -2;
        }
    }
    delete self;
    return result;
}

void *
arrow_consumer_new(struct ArrowAsyncDeviceStreamHandler *handler,
                   int queue_size)
{
    auto *self = new Consumer;
    self->start = arrow::CreateAsyncDeviceStreamHandler(
        handler, arrow::internal::GetCpuThreadPool(),
        static_cast<uint64_t>(queue_size));
    return self;
}

long
arrow_consumer_read(void *consumer, long n, int delay_ms, char *text, int size)
{
    auto *self = static_cast<Consumer *>(consumer);
    put("", text, size);
    if (!self->start.Wait(10.0)) {
        return -1;
    }
    if (!self->start.status().ok()) {
        put(self->start.status().message(), text, size);
        return 0;
    }
    if (!self->generator) {
        self->generator = self->start.result()->generator;
    }
    long count = 0;
    for (; count != n; count++) {
        auto next = self->generator();
        if (!next.Wait(10.0)) {
            return -1;
        }
        if (!next.status().ok()) {
            put(next.status().message(), text, size);
            break;
        }
        auto batch = next.result()->batch;
        if (batch == nullptr) {
            break;
        }
        auto column =
            std::static_pointer_cast<arrow::Int64Array>(batch->column(0));
        if (column->Value(0) != self->n_read++) {
            return -2;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    }
    return count;
}

void
arrow_consumer_drop(void *consumer)
{
    delete static_cast<Consumer *>(consumer);
    /* As for the pool of a producer. */
    arrow::internal::GetCpuThreadPool()->WaitForIdle();
}
