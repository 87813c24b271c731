-- The same results in one pass over the same files. The demo and the tests compare the job's output with them.
-- ${DATA} is the folder of the readings.
CREATE OR REPLACE TEMP VIEW readings AS
SELECT origin AS station,
       CAST(time_hour AS TIMESTAMPTZ) AS time,
       (CAST(temp AS DOUBLE) - 32) * 5 / 9 AS celsius
FROM read_csv('${DATA}/*.csv.gz', nullstr = 'NA', all_varchar = true)
WHERE temp IS NOT NULL;

CREATE OR REPLACE TEMP TABLE days AS
SELECT station,
       strftime(time AT TIME ZONE 'UTC', '%Y-%m-%d') AS day,
       avg(celsius) AS mean, min(celsius) AS minimum, max(celsius) AS maximum, count(*) AS readings
FROM readings
GROUP BY ALL;

-- A reading rises if it is higher than the one before; a run is a stretch of rising readings.
CREATE OR REPLACE TEMP TABLE rising AS
WITH compared AS (
    SELECT *, coalesce(celsius > lag(celsius) OVER (PARTITION BY station ORDER BY time), false) AS rises
    FROM readings
), numbered AS (
    SELECT *, sum(CASE WHEN rises THEN 0 ELSE 1 END) OVER (PARTITION BY station ORDER BY time) AS run FROM compared
)
SELECT station, time, celsius, run FROM numbered WHERE rises;

CREATE OR REPLACE TEMP TABLE falls AS
WITH compared AS (
    SELECT *, coalesce(celsius > lag(celsius) OVER (PARTITION BY station ORDER BY time), false) AS rises
    FROM readings
)
SELECT station, time FROM compared WHERE NOT rises;

-- The first rise of a run sets a timer for five hours later. The first rise after a timer that fired sets the next timer.
CREATE OR REPLACE TEMP TABLE alerts AS
WITH RECURSIVE timers AS (
    SELECT station, run, min(time) + INTERVAL 5 HOUR AS timer FROM rising GROUP BY ALL
    UNION ALL
    SELECT t.station, t.run, (
        SELECT min(r.time) + INTERVAL 5 HOUR FROM rising r
        WHERE r.station = t.station AND r.run = t.run AND r.time > t.timer
    ) AS timer
    FROM timers t
    WHERE t.timer IS NOT NULL
), set_timers AS (
    SELECT station, run, timer FROM timers WHERE timer IS NOT NULL
)
SELECT s.station,
       strftime(s.timer AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S+00:00') AS time,
       (SELECT last(x.celsius ORDER BY x.time) FROM readings x WHERE x.station = s.station AND x.time <= s.timer) AS celsius,
       6 AS hours
FROM set_timers s
WHERE NOT EXISTS (
    SELECT 1 FROM falls f
    WHERE f.station = s.station AND f.time <= s.timer
      AND f.time > (SELECT min(r.time) FROM rising r WHERE r.station = s.station AND r.run = s.run)
);
