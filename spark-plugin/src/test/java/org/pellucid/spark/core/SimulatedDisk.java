package org.pellucid.spark.core;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;

/**
 * One executor and one disk on virtual time. Tasks read their bytes and then compute, as many at once as
 * the {@link Tuner} admits. The disk's total rate depends on the number of readers, by a table of measured
 * rates; computing tasks share the cores.
 */
final class SimulatedDisk {
    /** The disk's bytes per second at 1, 2, 4, 8, 16 and 32 streams. */
    private final double[] rates;
    private final double cores;
    private final Random random;
    private double nowNs;

    SimulatedDisk(double[] rates, double cores, long seed) {
        this.rates = rates;
        this.cores = cores;
        this.random = new Random(seed);
    }

    private static final class Task {
        Tuner.Pass pass;
        double readLeft;
        double computeLeftNs;
        double readNs;
        long bytes;
    }

    long now() {
        return (long) nowNs;
    }

    /** Runs a stage in up to {@code slots} slots, and returns its time in nanoseconds. */
    double run(Tuner tuner, long stage, int tasks, int slots, double bytes, double computeNs) {
        double begin = nowNs;
        List<Task> running = new ArrayList<>();
        int left = tasks;
        while (left > 0 || !running.isEmpty()) {
            while (left > 0 && running.size() < slots) {
                Task task = new Task();
                task.pass = tuner.tryEnter(stage);
                if (task.pass == null) {
                    break;
                }
                if (left == tasks) {
                    tuner.expect(stage, tasks);
                }
                left--;
                double size = 0.8 + 0.4 * random.nextDouble();
                task.bytes = (long) (bytes * size);
                task.readLeft = task.bytes;
                task.computeLeftNs = computeNs * size;
                running.add(task);
            }
            Collections.shuffle(running, random);
            step(tuner, running);
        }
        return nowNs - begin;
    }

    private void step(Tuner tuner, List<Task> running) {
        long readers = running.stream().filter(task -> task.readLeft > 0).count();
        long computing = running.size() - readers;
        double readRate = readers == 0 ? 0 : rate(readers) / readers / 1e9;
        double computeRate = computing == 0 ? 0 : Math.min(1, cores / computing);
        double stepNs = Double.MAX_VALUE;
        for (Task task : running) {
            double ns = task.readLeft > 0 ? task.readLeft / readRate : task.computeLeftNs / computeRate;
            stepNs = Math.min(stepNs, ns);
        }
        nowNs += stepNs;
        for (Task task : new ArrayList<>(running)) {
            if (task.readLeft > 0) {
                task.readNs += stepNs;
                task.readLeft -= stepNs * readRate;
                task.readLeft = task.readLeft < 1e-3 ? 0 : task.readLeft;
            } else {
                task.computeLeftNs -= stepNs * computeRate;
            }
            if (task.readLeft <= 0 && task.computeLeftNs <= 1e-3) {
                running.remove(task);
                tuner.leave(task.pass, task.bytes, (long) task.readNs);
            }
        }
    }

    /** Interpolates linearly over the logarithm of the number of streams. */
    private double rate(long streams) {
        double at = Math.log(streams) / Math.log(2);
        int low = (int) Math.min(at, rates.length - 1);
        int high = Math.min(low + 1, rates.length - 1);
        return rates[low] + (rates[high] - rates[low]) * (at - low);
    }
}
