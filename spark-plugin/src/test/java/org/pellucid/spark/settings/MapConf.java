package org.pellucid.spark.settings;

import java.util.Map;
import org.apache.spark.SparkConf;
import scala.Tuple2;

/** A configuration without Spark's own keys, which would load all of Spark's dependencies. */
public final class MapConf extends SparkConf {
    private static final long serialVersionUID = 1;
    private final Map<String, String> all;

    public MapConf(Map<String, String> all) {
        super(false);
        this.all = all;
    }

    @Override
    public String get(String key, String otherwise) {
        return all.getOrDefault(key, otherwise);
    }

    @Override
    public boolean contains(String key) {
        return all.containsKey(key);
    }

    @Override
    @SuppressWarnings("unchecked")
    public Tuple2<String, String>[] getAllWithPrefix(String prefix) {
        return all.entrySet().stream().filter(entry -> entry.getKey().startsWith(prefix))
            .map(entry -> new Tuple2<>(entry.getKey().substring(prefix.length()), entry.getValue()))
            .toArray(Tuple2[]::new);
    }
}
